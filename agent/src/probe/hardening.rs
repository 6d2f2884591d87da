//! Hardening rules of the image, looked at on the running node.
//!
//! The profile lies on the node as a file of the image. It is used only when it is still that file: whoever could weaken
//! it would otherwise hide behind it.

use std::path::Path;

use drift::{Observation, ObservedRules, RuleProblem};
use hardening::{Carried, Report, RuleResult, Tree};
use manifest::{Digest, HARDENING_PROFILE_PATH};

use super::{read_text, under};

/// Looks at the rules of the profile with this digest.
pub(super) fn look(base: &Path, profile: Digest) -> Result<ObservedRules, Observation> {
    let failed = |detail: String| Observation::Error { detail };
    let text = read_text(&under(base, HARDENING_PROFILE_PATH))?;
    if Digest::of(text.as_bytes()) != profile {
        return Err(failed(format!("{HARDENING_PROFILE_PATH} is not that of the image")));
    }
    let carried = Carried::from_json(text.as_bytes())
        .map_err(|problem| failed(format!("{HARDENING_PROFILE_PATH}: {problem}")))?;
    let node = Tree::running_at(base).map_err(|error| failed(format!("opening {}: {error}", base.display())))?;
    let today = time::OffsetDateTime::now_utc().date();
    Ok(rules(carried.evaluate(&node, today)))
}

/// What a report says of rules that do not hold. Those that nothing on a node can answer are nobody's fault.
fn rules(report: Report) -> ObservedRules {
    let mut rules = ObservedRules::default();
    for rule in report.rules {
        let id = rule.id.to_string();
        match rule.result {
            RuleResult::NotApplicable { .. } => {}
            RuleResult::NotLookedAt { why } if why.is_elsewhere() => {}
            RuleResult::NotLookedAt { why } => {
                rules.unknown.insert(
                    id,
                    Observation::Error {
                        detail: why.to_string(),
                    },
                );
            }
            RuleResult::Passed | RuleResult::Waived { .. } => rules.looked_at += 1,
            RuleResult::Failed { problems, .. } => {
                rules.looked_at += 1;
                let problems = problems.into_iter().map(|problem| RuleProblem {
                    place: problem.place,
                    expected: problem.expected,
                    found: problem.found,
                });
                rules.failed.insert(id, problems.collect());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = r#"{"profile": {"name": "site", "title": "t", "rules": [
        {"id": "SSH-01", "title": "t", "rationale": "r", "severity": "high", "unfixed": "report_only",
         "checks": [{"login_defs": {"key": "UMASK", "expect": {"is": ["027"]}}}]},
        {"id": "GPU-05", "title": "t", "rationale": "r", "severity": "high", "unfixed": "outside",
         "checks": [{"live": {"outside": "the BMC"}}]}]},
        "waivers": []}"#;

    #[test]
    fn rules_are_looked_at_with_the_profile_of_the_image_only() {
        let node = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = under(node.path(), path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(HARDENING_PROFILE_PATH, PROFILE);
        write("/etc/login.defs", "UMASK 022\n");
        let digest = Digest::of(PROFILE.as_bytes());
        let rules = look(node.path(), digest).unwrap();
        assert_eq!(rules.looked_at, 1, "{rules:?}");
        assert_eq!(rules.failed["SSH-01"][0].place, "/etc/login.defs:1");
        assert!(rules.unknown.is_empty(), "{rules:?}");
        write("/etc/login.defs", "UMASK 027\n");
        assert!(look(node.path(), digest).unwrap().failed.is_empty());

        write(HARDENING_PROFILE_PATH, &PROFILE.replace("027", "022"));
        let Err(Observation::Error { detail }) = look(node.path(), digest) else {
            panic!("a weakened profile was taken")
        };
        assert!(detail.contains("is not that of the image"), "{detail}");
    }
}
