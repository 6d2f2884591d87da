//! Rules of /etc/audit/rules.d, in the order in which augenrules puts them together.

use std::cmp::Ordering;

use super::{join, lines, path, text};
use crate::place::{Place, Unlooked};

/// One rule, white space as one space, and where it stands.
pub(crate) type AuditRule = (String, String);

/// All rules.
pub(crate) fn rules(place: &dyn Place) -> Result<Vec<AuditRule>, Unlooked> {
    let folder = path("/etc/audit/rules.d")?;
    let mut names = place.list(&folder)?.unwrap_or_default();
    names.retain(|name| name.ends_with(b".rules"));
    names.sort_by(|a, b| by_version(a, b));
    let mut rules = Vec::new();
    for name in names {
        let file = join(&folder, &name)?;
        for (number, line) in lines(&text(place, &file)?.unwrap_or_default()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            rules.push((words.join(" "), format!("{file}:{number}")));
        }
    }
    Ok(rules)
}

/// `ls -v`: digits compare as numbers.
fn by_version(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (in_a, in_b) = (digits(a), digits(b));
        if in_a > 0 && in_b > 0 {
            let number = |text: &[u8], count: usize| -> Vec<u8> {
                text[..count].iter().copied().skip_while(|&byte| byte == b'0').collect()
            };
            let (x, y) = (number(a, in_a), number(b, in_b));
            match (x.len(), &x).cmp(&(y.len(), &y)) {
                Ordering::Equal => (a, b) = (&a[in_a..], &b[in_b..]),
                other => return other,
            }
            continue;
        }
        match (a.split_first(), b.split_first()) {
            (Some((x, rest_a)), Some((y, rest_b))) if x == y => (a, b) = (rest_a, rest_b),
            (x, y) => return x.map(|(byte, _)| byte).cmp(&y.map(|(byte, _)| byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_by_number() {
        let mut names = vec!["99-z.rules", "100-a.rules", "10-b.rules", "9-c.rules", "audit.rules"];
        names.sort_by(|a, b| by_version(a.as_bytes(), b.as_bytes()));
        assert_eq!(
            names,
            ["9-c.rules", "10-b.rules", "99-z.rules", "100-a.rules", "audit.rules"]
        );
    }
}
