//! PAM services: lines with their includes followed.

use super::text_at;
use crate::place::{Place, Unlooked};

/// Includes in includes.
const INCLUDES_MAX: usize = 8;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// `auth`, `account`, `password`, `session`.
    pub(crate) kind: String,
    /// Module file name without its folder.
    pub(crate) module: String,
    /// Arguments.
    pub(crate) arguments: Vec<String>,
}

/// The lines of a service. `None`: no such service.
pub(crate) fn lines(place: &dyn Place, service: &str) -> Result<Option<Vec<Line>>, Unlooked> {
    let mut all = Vec::new();
    let found = read_into(place, service, 0, &mut all)?;
    Ok(found.then_some(all))
}

fn read_into(place: &dyn Place, service: &str, depth: usize, all: &mut Vec<Line>) -> Result<bool, Unlooked> {
    let mut text = None;
    for folder in ["/etc/pam.d", "/usr/lib/pam.d"] {
        let at = format!("{folder}/{service}");
        if depth > INCLUDES_MAX {
            return Err(Unlooked::too_large(
                &super::path(&at)?,
                format!("{INCLUDES_MAX} includes in one another"),
            ));
        }
        text = text_at(place, &at)?;
        if text.is_some() {
            break;
        }
    }
    let Some(text) = text else { return Ok(false) };
    for (_, line) in super::lines(&text.replace("\\\n", " ")) {
        if let Some(included) = line.strip_prefix("@include") {
            read_into(place, included.trim(), depth + 1, all)?;
            continue;
        }
        let Some(line) = parse(line) else { continue };
        all.push(line);
    }
    Ok(true)
}

fn parse(line: &str) -> Option<Line> {
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    // The control is a word, or values in brackets.
    let rest = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.1,
        None => rest.split_once(char::is_whitespace)?.1,
    };
    let mut words = rest.split_whitespace();
    let module = words.next()?;
    Some(Line {
        kind: kind.trim_start_matches('-').to_ascii_lowercase(),
        module: module.rsplit('/').next().unwrap_or(module).to_owned(),
        arguments: words.map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_of_both_forms_are_read() {
        let line = parse("-auth\t[success=2 default=ignore]  /lib/security/pam_unix.so nullok").unwrap();
        assert_eq!((line.kind.as_str(), line.module.as_str()), ("auth", "pam_unix.so"));
        assert_eq!(line.arguments, ["nullok"]);
        assert_eq!(parse("auth required pam_wheel.so").unwrap().module, "pam_wheel.so");
        assert_eq!(parse("auth"), None);
    }
}
