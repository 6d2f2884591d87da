//! Checks of configuration files with a grammar of their own.

use std::path::Path;

use yaml::YamlError;

use super::{Context, Look, Verdict, problem};
use crate::check::{KubeletCheck, LimitsCheck, LoginDefs, SshdCheck, SystemdSetting};
use crate::facts::{limits as limits_facts, lines, path, sshd as sshd_facts, systemd, text, text_at};
use crate::place::Unlooked;

pub(super) fn sshd(context: &Context<'_>, check: &SshdCheck) -> Look {
    let Some(settings) = context.sshd()? else {
        return Ok(Verdict::NotApplicable("no OpenSSH server here".to_owned()));
    };
    let key = sshd_facts::keyword(&check.key);
    let expected = format!("{} {}", check.key, check.expect.in_words());
    let mut problems = Vec::new();
    let global = sshd_facts::global(settings, &key);
    let value = global.map(|(value, _)| sshd_facts::canonical(&key, value));
    if !check.expect.holds(value.as_deref()) {
        let (found, at) = global.unwrap_or(("not set", "/etc/ssh/sshd_config"));
        problems.push(problem(&expected, found, at));
    }
    for setting in sshd_facts::matched(settings, &key) {
        if !check.expect.holds(Some(&sshd_facts::canonical(&key, &setting.value))) {
            let found = format!("{} for Match {}", setting.value, setting.matching.join(" and "));
            problems.push(problem(&expected, &found, &setting.at));
        }
    }
    Ok(Verdict::from_problems(problems))
}

pub(super) fn login_defs(context: &Context<'_>, check: &LoginDefs) -> Look {
    const FILE: &str = "/etc/login.defs";
    let Some(text) = text_at(context.place, FILE)? else {
        return Ok(Verdict::NotApplicable(format!("no {FILE} here")));
    };
    // The last line of a key wins.
    let found = lines(&text)
        .filter_map(|(number, line)| {
            line.split_once(char::is_whitespace)
                .map(|(key, value)| (number, key, value))
        })
        .filter(|(_, key, _)| *key == check.key)
        .last();
    let expected = format!("{} {}", check.key, check.expect.in_words());
    Ok(Verdict::of(
        check.expect.holds(found.map(|(_, _, value)| value)),
        || match found {
            Some((number, _, value)) => problem(expected, value.trim(), format!("{FILE}:{number}")),
            None => problem(expected, "not set", FILE),
        },
    ))
}

pub(super) fn limits(context: &Context<'_>, check: &LimitsCheck) -> Look {
    let limits = limits_facts::limits(context.place)?;
    let found = limits.iter().rfind(|limit| {
        limit.domain == check.domain && limit.item == check.item && (limit.kind == check.kind || limit.kind == "-")
    });
    let LimitsCheck {
        domain,
        kind,
        item,
        expect,
    } = check;
    let expected = format!("{domain} {kind} {item} {}", expect.in_words());
    Ok(Verdict::of(
        expect.holds(found.map(|limit| limit.value.as_str())),
        || match found {
            Some(limit) => problem(expected, &limit.value, &limit.at),
            None => problem(expected, "not set", "/etc/security/limits.d"),
        },
    ))
}

pub(super) fn systemd_setting(context: &Context<'_>, check: &SystemdSetting) -> Look {
    let keys = systemd::setting_keys(context.place, &check.file)?;
    let found = keys
        .iter()
        .rfind(|key| key.section == check.section && key.name.eq_ignore_ascii_case(&check.key));
    let value = found.map(|key| key.value.as_str()).or(check.default.as_deref());
    let expected = format!("{}={}", check.key, check.expect.in_words());
    Ok(Verdict::of(check.expect.holds(value), || match found {
        Some(key) => problem(expected, &key.value, &key.at),
        None => problem(
            expected,
            value.unwrap_or("not set"),
            format!("/etc/systemd/{}", check.file),
        ),
    }))
}

pub(super) fn kubelet(context: &Context<'_>, check: &KubeletCheck) -> Look {
    const FILES: [&str; 2] = ["/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/config.yaml"];
    for file in FILES {
        let at = path(file)?;
        let Some(text) = text(context.place, &at)? else {
            continue;
        };
        let not_understood = |problem: String| Unlooked::NotUnderstood {
            path: file.to_owned(),
            problem,
        };
        let document: serde_json::Value = yaml::parse(Path::new(file), &text).map_err(|error| {
            not_understood(match error {
                // Without the line itself: a report is read by more people than a node's files.
                YamlError::Content { line, problem, .. } => format!("line {line}: {problem}"),
                other => other.to_string(),
            })
        })?;
        if !document.is_object() {
            return Err(not_understood("expected keys at the top".to_owned()));
        }
        let value = check
            .key
            .split('.')
            .try_fold(&document, |value, name| value.get(name))
            .filter(|value| !value.is_null());
        let shown = match value {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => check.default.clone(),
        };
        let expected = format!("{} {}", check.key, check.expect.in_words());
        return Ok(Verdict::of(check.expect.holds(Some(&shown)), || {
            problem(expected, &shown, file)
        }));
    }
    Ok(Verdict::NotApplicable("no kubelet here".to_owned()))
}
