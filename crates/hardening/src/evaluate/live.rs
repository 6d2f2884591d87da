//! Checks that a built root cannot answer.

use std::collections::BTreeSet;

use super::{Context, Look, Verdict, problem};
use crate::check::Live;
use crate::facts::{join, path, text_at};
use crate::place::Unlooked;
use crate::words::live_in_words;

pub(super) fn live(context: &Context<'_>, check: &Live) -> Look {
    if let Live::Outside(who) = check {
        return Err(Unlooked::Outside { who: who.clone() });
    }
    if !context.place.is_running() {
        return Err(Unlooked::OnlyRunning {
            what: live_in_words(check),
        });
    }
    match check {
        Live::SecureBoot => secure_boot(context),
        Live::ModuleSignatures => module_signatures(context),
        Live::ApparmorEnforced(least) => apparmor(context, *least),
        Live::Listening(allowed) => listening(context, allowed),
        Live::Outside(who) => Err(Unlooked::Outside { who: who.clone() }),
    }
}

fn secure_boot(context: &Context<'_>) -> Look {
    const EXPECTED: &str = "Secure Boot on";
    let folder = path("/sys/firmware/efi/efivars")?;
    if context.place.metadata(&path("/sys/firmware/efi")?)?.is_none() {
        return Ok(Verdict::NotApplicable(
            "started by BIOS, which has no Secure Boot".to_owned(),
        ));
    }
    let names = context.place.list(&folder)?.unwrap_or_default();
    if names.iter().any(|name| name.starts_with(b"BootOrder-")) && !names.iter().any(|name| is_secure_boot(name)) {
        return Ok(Verdict::NotApplicable("firmware without Secure Boot".to_owned()));
    }
    let Some(name) = names.iter().find(|name| is_secure_boot(name)) else {
        return Err(Unlooked::unreadable(
            &folder,
            "no variable SecureBoot; efivarfs may not be mounted",
        ));
    };
    let variable = join(&folder, name)?;
    // Four bytes of attributes, then the value.
    match context.place.read(&variable)?.as_deref() {
        Some([_, _, _, _, value]) => {
            let found = if *value == 0 { "off" } else { "neither on nor off" };
            Ok(Verdict::of(*value == 1, || {
                problem(EXPECTED, found, variable.to_string())
            }))
        }
        _ => Err(Unlooked::NotUnderstood {
            path: variable.to_string(),
            problem: "expected five bytes".to_owned(),
        }),
    }
}

fn is_secure_boot(name: &[u8]) -> bool {
    name.starts_with(b"SecureBoot-")
}

fn module_signatures(context: &Context<'_>) -> Look {
    const ENFORCE: &str = "/sys/module/module/parameters/sig_enforce";
    const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
    if text_at(context.place, ENFORCE)?.is_some_and(|text| text.trim() == "Y") {
        return Ok(Verdict::Pass);
    }
    let Some(lockdown) = text_at(context.place, LOCKDOWN)? else {
        return Err(Unlooked::unreadable(
            &path(LOCKDOWN)?,
            "not there; securityfs may not be mounted",
        ));
    };
    // The kernel puts brackets around the one in force.
    let holds = lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]");
    Ok(Verdict::of(holds, || {
        problem(
            "modules only with a signature",
            &format!("lockdown {}", lockdown.trim()),
            LOCKDOWN,
        )
    }))
}

fn apparmor(context: &Context<'_>, least: u32) -> Look {
    const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
    const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";
    let expected = format!("at least {least} profiles in enforce mode");
    if text_at(context.place, ENABLED)?.is_none_or(|text| text.trim() != "Y") {
        return Ok(Verdict::Fail(vec![problem(expected, "AppArmor is off", ENABLED)]));
    }
    let Some(profiles) = text_at(context.place, PROFILES)? else {
        return Err(Unlooked::unreadable(
            &path(PROFILES)?,
            "not there; securityfs may not be mounted",
        ));
    };
    let count = profiles.lines().filter(|line| line.ends_with("(enforce)")).count();
    let holds = u32::try_from(count).unwrap_or(u32::MAX) >= least;
    Ok(Verdict::of(holds, || problem(expected, &count.to_string(), PROFILES)))
}

fn listening(context: &Context<'_>, allowed: &[u16]) -> Look {
    /// TCP_LISTEN of the kernel.
    const LISTEN: &str = "0A";
    let mut found = BTreeSet::new();
    for at in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Some(text) = text_at(context.place, at)? else {
            // Without IPv6 there is no tcp6; without tcp there is no telling.
            if at.ends_with('6') {
                continue;
            }
            return Err(Unlooked::unreadable(&path(at)?, "not there"));
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(state)) = (fields.get(1), fields.get(3)) else {
                continue;
            };
            let Some((address, port)) = local.split_once(':') else {
                continue;
            };
            let port = u16::from_str_radix(port, 16).map_err(|_| Unlooked::NotUnderstood {
                path: at.to_owned(),
                problem: format!("port {port:?}"),
            })?;
            if *state == LISTEN && !is_loopback(address) && !allowed.contains(&port) {
                found.insert((port, at));
            }
        }
    }
    let problems = found
        .into_iter()
        .map(|(port, at)| {
            problem(
                "no listener beyond the allowed ports",
                &format!("TCP port {port} listens"),
                at,
            )
        })
        .collect();
    Ok(Verdict::from_problems(problems))
}

/// Addresses as the kernel prints them: 32-bit words in the order of the machine's bytes.
fn is_loopback(address: &str) -> bool {
    match address.len() {
        8 => u32::from_str_radix(address, 16).is_ok_and(|word| word.to_ne_bytes()[0] == 127),
        _ => {
            let words: Vec<u32> = (0..4)
                .filter_map(|at| address.get(at * 8..at * 8 + 8))
                .filter_map(|word| u32::from_str_radix(word, 16).ok())
                .collect();
            let mut bytes = Vec::new();
            for word in &words {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.len() == 16
                && (bytes[..15].iter().all(|&byte| byte == 0) && bytes[15] == 1
                    // ::ffff:127.0.0.0/8
                    || bytes[..10].iter().all(|&byte| byte == 0) && bytes[10..13] == [0xff, 0xff, 127])
        }
    }
}
