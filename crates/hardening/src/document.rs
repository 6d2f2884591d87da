//! The document of all profiles, written from the data so that it cannot lie.

use std::fmt::Write;

use crate::profile::Profile;
use crate::rule::Rule;
use crate::words::{check_in_words, condition_in_words, fix_in_words, unfixed_in_words};

/// Areas of rules in the order of the document.
const AREAS: [(&str, &str); 10] = [
    ("SSH", "Secure shell"),
    ("ACC", "Accounts"),
    ("FS", "Files and mounts"),
    ("MOD", "Kernel modules"),
    ("KRN", "Kernel"),
    ("NET", "Network"),
    ("SVC", "Services and packages"),
    ("BAN", "Banner"),
    ("GPU", "GPU, scheduler and BMC"),
    ("HPC", "Limits for parallel work"),
];

const INTRODUCTION: &str = "# Hardening

This page is written from the profiles in `images/profiles` by a test of `crates/hardening`; change the profiles, then
run it with `UPDATE_GOLDEN=1`.

A *rule* has an id, a reason, checks that must all hold, and what brings it about. A *profile* is a list of rules; one
may extend another. The same rules are applied to an image while it is built, looked at in the built root, and looked at
on running nodes. A rule comes out as `passed`, `failed`, `waived`, `not applicable` (nothing here that it is about), or
`not looked at`: a file that could not be read, or something that only a running node or its BMC can answer. The last is
never a pass.

On a built root a sysctl, a module, a mount or a unit is judged by its files, in the order in which the system itself
takes them. On a running node what the kernel has now must hold as well.
";

const WRITING: &str = "
## Writing a waiver

A waiver lets one rule fail until a day, because somebody answers for it. It lies in a file beside the image's recipe:

```yaml
waivers:
  - rule: KRN-14
    reason: Mitigations cost 9 % on the solver of project 17; its partition is not shared.
    approver: a.kovacs
    expires_at: 2027-03-31
    # Optional: only this found value is let through, any other fails.
    value: mitigations=off
```

The last day counts. After it the rule fails and says that its waiver expired. A waiver for a rule that the profile does
not check, two for one rule, and one without reason or approver are errors, with file, line and column. A waiver lets a
failure through, never \"not looked at\". A rule under a waiver in force is not written into an image either.

## Writing a profile of your own

A file beside the others, named after the profile:

```yaml
title: Login nodes of the site
extends: gpu-node
# Other checks, fixes, title or severity of rules that are there; what is not named stays.
changes:
  - id: SSH-12
    reason: Two hundred people sign in at nine.
    checks:
      - sshd: {key: MaxStartups, expect: {fields_at_most: [200, 100, 400]}}
    fixes:
      - sshd: [MaxStartups, \"200:30:400\"]
# Rules that are not checked, with the reason.
off:
  - {id: SVC-09, reason: People may use cron here.}
# Rules of your own: every field of a rule, with an id that is free.
rules:
  - id: SITE-01
    title: The site's mirror is the only source of packages
    rationale: Everything else is blocked by the firewall and would only time out.
    severity: medium
    checks:
      - apt_sources: {hosts: [mirror.example.net]}
    unfixed: report_only
```

A rule needs `fixes`, or `unfixed` (`report_only`, `re_image_only`, `outside`). Unknown keys, unknown kinds of check and
bad regular expressions are errors with file, line and column.
";

/// Writes the document of profiles: the first in full, of the others what they change.
#[must_use]
pub fn document(profiles: &[Profile]) -> String {
    let mut text = INTRODUCTION.to_owned();
    if let Some(first) = profiles.first() {
        rules(&mut text, first);
    }
    for profile in profiles.iter().skip(1) {
        changes(&mut text, profile, profiles);
    }
    text.push_str(WRITING);
    text
}

fn rules(text: &mut String, profile: &Profile) {
    let _ = write!(
        text,
        "\n## Profile `{}`: {}\n\n{} rules.\n",
        profile.name,
        profile.title,
        profile.rules.len()
    );
    for (area, name) in AREAS {
        let rules: Vec<&Rule> = profile.rules.iter().filter(|rule| rule.id.area() == area).collect();
        if !rules.is_empty() {
            let _ = write!(text, "\n### {area}: {name}\n\n");
            table(text, &rules);
        }
    }
    let others: Vec<&Rule> = profile
        .rules
        .iter()
        .filter(|rule| !AREAS.iter().any(|(area, _)| *area == rule.id.area()))
        .collect();
    if !others.is_empty() {
        text.push_str("\n### Others\n\n");
        table(text, &others);
    }
    if !profile.off.is_empty() {
        text.push_str("\n### Not adopted\n\n| id | rule | why not |\n|---|---|---|\n");
        for off in &profile.off {
            let _ = writeln!(text, "| {} | {} | {} |", off.id, cell(&off.title), cell(&off.reason));
        }
    }
}

fn table(text: &mut String, rules: &[&Rule]) {
    text.push_str("| id | rule | why | check | fix | severity | GPU conflict |\n|---|---|---|---|---|---|---|\n");
    for rule in rules {
        let conflict = rule.gpu_conflict.as_ref().map_or(String::new(), |conflict| {
            format!("{} Suggested: {}", conflict.breaks, conflict.suggested)
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            rule.id,
            cell(&rule.title),
            cell(&rule.rationale),
            cell(&checks(rule)),
            cell(&fixes(rule)),
            rule.severity.as_str(),
            cell(&conflict)
        );
    }
}

fn checks(rule: &Rule) -> String {
    let mut parts: Vec<_> = rule.applies_when.iter().map(condition_in_words).collect();
    parts.extend(rule.checks.iter().map(check_in_words));
    parts.join("; ")
}

fn fixes(rule: &Rule) -> String {
    if let Some(unfixed) = rule.unfixed {
        return unfixed_in_words(unfixed).to_owned();
    }
    let parts: Vec<_> = rule.fixes.iter().map(fix_in_words).collect();
    parts.join("; ")
}

fn changes(text: &mut String, profile: &Profile, profiles: &[Profile]) {
    let parent = profile.extends.as_deref().unwrap_or("");
    let _ = write!(
        text,
        "\n## Profile `{}`: {}\n\nExtends `{parent}`; {} rules. What is not named here is as there.\n",
        profile.name,
        profile.title,
        profile.rules.len()
    );
    if !profile.changes.is_empty() {
        text.push_str("\n### Changed\n\n| id | why | check | fix | severity |\n|---|---|---|---|---|\n");
        for change in &profile.changes {
            let Some(rule) = profile.rule(&change.id) else { continue };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                change.id,
                cell(&change.reason),
                cell(&checks(rule)),
                cell(&fixes(rule)),
                rule.severity.as_str()
            );
        }
    }
    let parent = profiles.iter().find(|other| other.name == parent);
    let is_new = |id: &crate::rule::RuleId| parent.is_none_or(|parent| parent.rule(id).is_none());
    let off_before = |id: &crate::rule::RuleId| parent.is_some_and(|parent| parent.off.iter().any(|off| off.id == *id));
    let off: Vec<_> = profile.off.iter().filter(|off| !off_before(&off.id)).collect();
    if !off.is_empty() {
        text.push_str("\n### Off\n\n| id | rule | why |\n|---|---|---|\n");
        for off in off {
            let _ = writeln!(text, "| {} | {} | {} |", off.id, cell(&off.title), cell(&off.reason));
        }
    }
    let own: Vec<&Rule> = profile.rules.iter().filter(|rule| is_new(&rule.id)).collect();
    if !own.is_empty() {
        text.push_str("\n### Added\n\n");
        table(text, &own);
    }
    if !profile.notes.is_empty() {
        text.push_str("\n### Left to role, firmware and policy\n\n| subject | conflict | suggested |\n|---|---|---|\n");
        for note in &profile.notes {
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                cell(&note.subject),
                cell(&note.conflict),
                cell(&note.suggested)
            );
        }
    }
}

/// A cell of a table: one line, no bar.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}
