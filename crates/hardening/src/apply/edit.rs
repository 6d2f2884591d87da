//! Changes of texts that others wrote: what is not asked for stays as it is, byte for byte. Pure.

use crate::facts::accounts::{is_locked, is_nologin, is_system};
use crate::facts::apt::sources;
use crate::fix::AccountsFix;
use manifest::TreePath;

/// Changes lines; `None` keeps one. The end of the text stays as it was.
fn map_lines(text: &str, mut change: impl FnMut(usize, &str) -> Option<String>) -> String {
    let mut changed = String::with_capacity(text.len());
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let body = line.strip_suffix('\n').unwrap_or(line);
        match change(at + 1, body) {
            Some(new) => changed.push_str(&new),
            None => changed.push_str(body),
        }
        changed.push_str(&line[body.len()..]);
    }
    changed
}

fn ended(text: &str) -> String {
    let mut text = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Sets a key of login.defs: its last line, which is the one that counts, or a new one.
pub(super) fn login_defs(text: &str, key: &str, value: &str) -> String {
    let is_key = |line: &str| line.split_whitespace().next() == Some(key);
    let last = text.lines().enumerate().filter(|(_, line)| is_key(line)).last();
    match last {
        Some((_, line)) if line.split_whitespace().nth(1) == Some(value) => text.to_owned(),
        Some((at, _)) => map_lines(text, |number, _| (number == at + 1).then(|| format!("{key}\t{value}"))),
        None => format!("{}{key}\t{value}\n", ended(text)),
    }
}

/// Puts a line into a PAM service, after a module's line or at the end; nothing when it is there.
pub(super) fn pam(text: &str, line: &str, after: &str) -> String {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if text.lines().any(|one| words(one) == words(line)) {
        return text.to_owned();
    }
    let place = text
        .lines()
        .position(|one| !one.trim_start().starts_with('#') && words(one).iter().any(|word| word == after));
    match place {
        Some(place) => map_lines(&ended(text), |number, one| {
            (number == place + 1).then(|| format!("{one}\n{line}"))
        }),
        None => format!("{}{line}\n", ended(text)),
    }
}

/// Changes passwd.
pub(super) fn passwd(text: &str, fix: AccountsFix) -> String {
    map_lines(text, |_, line| {
        let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        if fields.len() != 7 || line.starts_with(['#', '+', '-']) {
            return None;
        }
        match fix {
            AccountsFix::LockRoot if fields[0] == "root" && fields[1] != "x" => "x".clone_into(&mut fields[1]),
            AccountsFix::LockEmptyPasswords if fields[1].is_empty() => "x".clone_into(&mut fields[1]),
            AccountsFix::SystemNologin => {
                let is_kept = fields[0] == "root" || (fields[0] == "sync" && fields[6] == "/bin/sync");
                let uid: u32 = fields[2].parse().ok()?;
                if is_kept || !is_system(uid) || is_nologin(&fields[6]) {
                    return None;
                }
                "/usr/sbin/nologin".clone_into(&mut fields[6]);
            }
            _ => return None,
        }
        Some(fields.join(":"))
    })
}

/// Changes shadow. `missing` are users without an entry that need one.
pub(super) fn shadow(text: &str, fix: AccountsFix, missing: &[String]) -> String {
    let changed = map_lines(text, |_, line| {
        let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        if fields.len() < 2 || line.starts_with('#') {
            return None;
        }
        let is_meant = match fix {
            AccountsFix::LockRoot => fields[0] == "root" && !is_locked(&fields[1]),
            AccountsFix::LockEmptyPasswords => fields[1].is_empty(),
            AccountsFix::SystemNologin => false,
        };
        if !is_meant {
            return None;
        }
        // With the old hash behind it, as `passwd --lock` does.
        fields[1] = if fields[1].is_empty() {
            "*".to_owned()
        } else {
            format!("!{}", fields[1])
        };
        Some(fields.join(":"))
    });
    if missing.is_empty() {
        return changed;
    }
    let mut changed = ended(&changed);
    for name in missing {
        changed.push_str(&format!("{name}:*::0:99999:7:::\n"));
    }
    changed
}

/// Ties sources that name no keyring to one.
pub(super) fn apt_signed_by(path: &TreePath, text: &str, keyring: &str) -> String {
    let open: Vec<usize> = sources(path, text)
        .iter()
        .filter(|source| !source.is_signed_by)
        .filter_map(|source| source.at.rsplit(':').next()?.parse().ok())
        .collect();
    if open.is_empty() {
        return text.to_owned();
    }
    if path.name().ends_with(b".sources") {
        return map_lines(&ended(text), |number, line| {
            open.contains(&number).then(|| format!("Signed-By: {keyring}\n{line}"))
        });
    }
    map_lines(text, |number, line| {
        if !open.contains(&number) {
            return None;
        }
        let (kind, rest) = line.trim_start().split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        Some(match rest.strip_prefix('[') {
            Some(options) => format!("{kind} [signed-by={keyring} {}", options.trim_start()),
            None => format!("{kind} [signed-by={keyring}] {rest}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_that_counts_changes_and_a_second_time_nothing() {
        let text = "# UMASK 077\nUMASK 022\nPASS_MAX_DAYS\t99999\nUMASK\t022";
        let once = login_defs(text, "UMASK", "027");
        assert_eq!(once, "# UMASK 077\nUMASK 022\nPASS_MAX_DAYS\t99999\nUMASK\t027");
        assert_eq!(login_defs(&once, "UMASK", "027"), once);
        assert!(login_defs(text, "NEW", "1").ends_with("UMASK\t022\nNEW\t1\n"));
    }

    #[test]
    fn a_pam_line_goes_after_its_module_once() {
        let text = "# auth required pam_wheel.so\nauth sufficient pam_rootok.so\n@include common-auth\n";
        let line = "auth required pam_wheel.so use_uid group=sudo";
        let once = pam(text, line, "pam_rootok.so");
        assert_eq!(
            once,
            format!("# auth required pam_wheel.so\nauth sufficient pam_rootok.so\n{line}\n@include common-auth\n")
        );
        assert_eq!(pam(&once, line, "pam_rootok.so"), once);
    }

    #[test]
    fn accounts_are_locked_and_the_rest_stays() {
        assert_eq!(
            shadow(
                "root:$y$j9T$a:1:0:::::\ndaemon:*:1::::::\nopen::1::::::\n",
                AccountsFix::LockRoot,
                &[]
            ),
            "root:!$y$j9T$a:1:0:::::\ndaemon:*:1::::::\nopen::1::::::\n"
        );
        assert_eq!(
            shadow("open::1::::::", AccountsFix::LockEmptyPasswords, &[]),
            "open:*:1::::::"
        );
        assert_eq!(
            shadow("", AccountsFix::LockRoot, &["root".to_owned()]),
            "root:*::0:99999:7:::\n"
        );
        let text = "root:x:0:0:root:/root:/bin/bash\nsync:x:4:65534::/bin:/bin/sync\ngames:x:5:60::/usr/games:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(
            passwd(text, AccountsFix::SystemNologin),
            text.replace("games:/bin/sh", "games:/usr/sbin/nologin")
        );
    }

    #[test]
    fn sources_are_tied_in_both_formats() {
        let list: TreePath = "/etc/apt/sources.list".parse().unwrap();
        let once = apt_signed_by(&list, "deb http://a s m\ndeb [arch=amd64] http://b s m\n", "/k");
        assert_eq!(
            once,
            "deb [signed-by=/k] http://a s m\ndeb [signed-by=/k arch=amd64] http://b s m\n"
        );
        assert_eq!(apt_signed_by(&list, &once, "/k"), once);
        let deb822: TreePath = "/etc/apt/sources.list.d/a.sources".parse().unwrap();
        let once = apt_signed_by(&deb822, "# x\nTypes: deb\nURIs: a\n\nTypes: deb\nSigned-By: /j\n", "/k");
        assert_eq!(
            once,
            "# x\nSigned-By: /k\nTypes: deb\nURIs: a\n\nTypes: deb\nSigned-By: /j\n"
        );
        assert_eq!(apt_signed_by(&deb822, &once, "/k"), once);
    }
}
