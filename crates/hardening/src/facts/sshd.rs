//! sshd_config(5): what the server will do, worked out as sshd does.
//!
//! The first value of a keyword counts, in the order of reading, included files in their place. Values in a `Match`
//! block count only for connections that match, and there they override the global ones; `Match all` ends such a block.
//! An included file ends its own blocks. Defaults are OpenSSH's (9.2 in Debian 12, 10.0 in Debian 13).

use manifest::{PathPattern, TreePath};

use super::{glob, path, text};
use crate::place::{Place, Unlooked};

const CONFIG: &str = "/etc/ssh/sshd_config";
/// Includes in includes, as OpenSSH bounds them.
const INCLUDES_MAX: usize = 16;
/// Settings of all files together.
const SETTINGS_MAX: usize = 20_000;

/// One keyword with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Keyword in lower case, today's name.
    pub(crate) key: String,
    /// Arguments with one space between.
    pub(crate) value: String,
    /// The match blocks it stands in, from the outside; empty is global.
    pub(crate) matching: Vec<String>,
    /// Path and line.
    pub(crate) at: String,
}

/// All settings, in the order in which they are read. `None`: there is no OpenSSH server.
pub(crate) fn settings(place: &dyn Place) -> Result<Option<Vec<Setting>>, Unlooked> {
    let config = path(CONFIG)?;
    let Some(content) = text(place, &config)? else {
        let server = place.metadata(&path("/usr/sbin/sshd")?)?;
        return Ok(server.map(|_| Vec::new()));
    };
    let mut settings = Vec::new();
    read_into(place, &config, &content, &[], 0, &mut settings)?;
    Ok(Some(settings))
}

/// The global value of a keyword: as set, or the default. `None`: not set, and nothing is the default.
pub(crate) fn global<'a>(settings: &'a [Setting], key: &str) -> Option<(&'a str, &'a str)> {
    settings
        .iter()
        .find(|setting| setting.key == key && setting.matching.is_empty())
        .map(|setting| (setting.value.as_str(), setting.at.as_str()))
        .or_else(|| default(key).map(|value| (value, "the default of OpenSSH")))
}

/// Values that match blocks set instead of the global one.
pub(crate) fn matched<'a>(settings: &'a [Setting], key: &'a str) -> impl Iterator<Item = &'a Setting> {
    settings
        .iter()
        .filter(move |setting| setting.key == key && !setting.matching.is_empty())
}

/// Brings a value into the form that is compared: times in seconds, MaxStartups with its three fields, list elements
/// without spaces.
pub(crate) fn canonical(key: &str, value: &str) -> String {
    match key {
        "logingracetime" | "clientaliveinterval" => seconds(value).map_or(value.to_owned(), |time| time.to_string()),
        // `10` means: from ten on, refuse all.
        "maxstartups" if !value.contains(':') => format!("{value}:100:{value}"),
        _ => value.to_owned(),
    }
}

/// The keyword in lower case, an old name brought to today's.
pub(crate) fn keyword(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "challengeresponseauthentication" | "skeyauthentication" => "kbdinteractiveauthentication".to_owned(),
        _ => name,
    }
}

fn read_into(
    place: &dyn Place,
    file: &TreePath,
    content: &str,
    outer: &[String],
    depth: usize,
    settings: &mut Vec<Setting>,
) -> Result<(), Unlooked> {
    let mut matching = outer.to_vec();
    for (number, line) in super::lines(content) {
        let Some((key, arguments)) = words(line) else {
            return Err(Unlooked::NotUnderstood {
                path: format!("{file}:{number}"),
                problem: "a quotation without its end".to_owned(),
            });
        };
        match key.as_str() {
            "include" => {
                if depth >= INCLUDES_MAX {
                    return Err(Unlooked::too_large(
                        file,
                        format!("{INCLUDES_MAX} includes in one another"),
                    ));
                }
                for pattern in &arguments {
                    for included in include_paths(place, file, number, pattern)? {
                        if let Some(content) = text(place, &included)? {
                            read_into(place, &included, &content, &matching, depth + 1, settings)?;
                        }
                    }
                }
            }
            "match" => {
                matching = outer.to_vec();
                let criteria = arguments.join(" ");
                if !criteria.eq_ignore_ascii_case("all") {
                    matching.push(criteria);
                }
            }
            _ => {
                if settings.len() >= SETTINGS_MAX {
                    return Err(Unlooked::too_large(file, format!("{SETTINGS_MAX} settings")));
                }
                settings.push(Setting {
                    key,
                    value: arguments.join(" "),
                    matching: matching.clone(),
                    at: format!("{file}:{number}"),
                });
            }
        }
    }
    Ok(())
}

fn include_paths(place: &dyn Place, file: &TreePath, number: usize, pattern: &str) -> Result<Vec<TreePath>, Unlooked> {
    let absolute = if pattern.starts_with('/') {
        pattern.to_owned()
    } else {
        format!("/etc/ssh/{pattern}")
    };
    // Brackets of glob(7) are no part of a pattern here: rather say so than miss a file.
    let not_understood = |problem: String| Unlooked::NotUnderstood {
        path: format!("{file}:{number}"),
        problem,
    };
    if absolute.contains(['[', '{', '~', '%']) {
        return Err(not_understood(format!("Include {pattern:?} is beyond * and ?")));
    }
    let escaped = manifest::escape_bytes(absolute.as_bytes());
    let pattern = PathPattern::try_from(escaped).map_err(|error| not_understood(error.to_string()))?;
    glob(place, &pattern)
}

/// Keyword and arguments of a line. The keyword may be followed by `=`; arguments may be quoted; `#` at the start of one
/// ends the line.
fn words(line: &str) -> Option<(String, Vec<String>)> {
    let end = line.find([' ', '\t', '=']).unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    let mut arguments = Vec::new();
    let mut characters = rest.chars().peekable();
    loop {
        while characters.next_if(|character| character.is_whitespace()).is_some() {}
        match characters.peek() {
            None | Some('#') => break,
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quote: Option<char> = None;
        while let Some(&character) = characters.peek() {
            if quote.is_none() && character.is_whitespace() {
                break;
            }
            characters.next();
            match (quote, character) {
                (None, '"' | '\'') => quote = Some(character),
                (Some(open), _) if open == character => quote = None,
                (_, '\\') if matches!(characters.peek(), Some('"' | '\'' | '\\')) => word.extend(characters.next()),
                _ => word.push(character),
            }
        }
        if quote.is_some() {
            return None;
        }
        arguments.push(word);
    }
    Some((keyword(key), arguments))
}

/// A time of sshd_config(5), such as `1h30m`, in seconds.
fn seconds(value: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut number: Option<u64> = None;
    for character in value.chars() {
        if let Some(digit) = character.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match character.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    total.checked_add(number.unwrap_or(0))
}

/// What OpenSSH does where nothing is set, for the keywords that rules ask for.
fn default(key: &str) -> Option<&'static str> {
    Some(match key {
        "permitrootlogin" => "prohibit-password",
        "passwordauthentication" | "kbdinteractiveauthentication" | "pubkeyauthentication" => "yes",
        "permitemptypasswords" | "hostbasedauthentication" | "x11forwarding" | "permittunnel" => "no",
        "permituserenvironment" | "gatewayports" | "usepam" => "no",
        "ignorerhosts" | "allowagentforwarding" | "allowtcpforwarding" | "strictmodes" | "debianbanner" => "yes",
        "maxauthtries" => "6",
        "logingracetime" => "120",
        "clientaliveinterval" => "0",
        "clientalivecountmax" => "3",
        "maxsessions" => "10",
        "maxstartups" => "10:30:100",
        "loglevel" => "INFO",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn config(files: &[(&str, &str)]) -> Vec<Setting> {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let place = root.path().join(name.trim_start_matches('/'));
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, content).unwrap();
        }
        settings(&Tree::folder(root.path()).unwrap()).unwrap().unwrap()
    }

    fn value(settings: &[Setting], key: &str) -> String {
        global(settings, key).unwrap().0.to_owned()
    }

    #[test]
    fn the_first_value_counts_in_the_order_of_reading() {
        let settings = config(&[
            (
                "/etc/ssh/sshd_config",
                "MaxAuthTries 3\nInclude /etc/ssh/sshd_config.d/*.conf\nX11Forwarding yes\nmaxauthtries 9\n",
            ),
            ("/etc/ssh/sshd_config.d/20-b.conf", "X11Forwarding=no\n"),
            (
                "/etc/ssh/sshd_config.d/10-a.conf",
                "MaxAuthTries 5\nx11forwarding = \"yes\"\n",
            ),
            ("/etc/ssh/sshd_config.d/ignored.txt", "PermitRootLogin yes\n"),
        ]);
        assert_eq!(value(&settings, "maxauthtries"), "3");
        assert_eq!(value(&settings, "x11forwarding"), "yes");
        assert_eq!(
            global(&settings, "x11forwarding").unwrap().1,
            "/etc/ssh/sshd_config.d/10-a.conf:2"
        );
        assert_eq!(value(&settings, "permitrootlogin"), "prohibit-password");
    }

    #[test]
    fn match_blocks_are_kept_apart_and_match_all_ends_one() {
        let settings = config(&[
            (
                "/etc/ssh/sshd_config",
                "Match User backup # nightly\n PasswordAuthentication yes\n Include extra/*\nMatch all\nPasswordAuthentication no\n\
                 Include blocks\nLogLevel VERBOSE\n",
            ),
            (
                "/etc/ssh/extra/one",
                "Match Address 10.0.0.0/8\nPermitRootLogin yes\nMatch all\nMaxSessions 1\n",
            ),
            ("/etc/ssh/blocks", "Match Group x\nLogLevel QUIET\n"),
        ]);
        assert_eq!(value(&settings, "passwordauthentication"), "no");
        assert_eq!(
            matched(&settings, "passwordauthentication").next().unwrap().matching,
            ["User backup"]
        );
        // Included inside a block: still conditional, also after `Match all` there.
        assert_eq!(value(&settings, "permitrootlogin"), "prohibit-password");
        assert_eq!(
            matched(&settings, "permitrootlogin").next().unwrap().matching,
            ["User backup", "Address 10.0.0.0/8"]
        );
        assert_eq!(value(&settings, "maxsessions"), "10");
        // A block in an included file ends with that file.
        assert_eq!(value(&settings, "loglevel"), "VERBOSE");
    }

    #[test]
    fn an_include_that_goes_in_circles_or_a_broken_quotation_is_not_understood() {
        for content in [
            "Include /etc/ssh/sshd_config\n",
            "Banner \"/etc/issue\n",
            "Include /etc/ssh/[ab]*\n",
        ] {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("etc/ssh")).unwrap();
            std::fs::write(root.path().join("etc/ssh/sshd_config"), content).unwrap();
            assert!(settings(&Tree::folder(root.path()).unwrap()).is_err(), "{content}");
        }
    }

    #[test]
    fn old_names_times_and_short_forms_are_brought_to_one_form() {
        let settings = config(&[("/etc/ssh/sshd_config", "ChallengeResponseAuthentication no\n")]);
        assert_eq!(value(&settings, "kbdinteractiveauthentication"), "no");
        assert_eq!(canonical("logingracetime", "1m30s"), "90");
        assert_eq!(canonical("logingracetime", "soon"), "soon");
        assert_eq!(canonical("maxstartups", "10"), "10:100:10");
    }

    #[test]
    fn no_server_is_no_configuration() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(settings(&Tree::folder(root.path()).unwrap()).unwrap(), None);
    }
}
