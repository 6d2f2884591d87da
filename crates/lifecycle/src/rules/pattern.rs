//! Texts with places: patterns that take a rack and a unit out of what a switch or relay says, and names made of them.

use serde::Deserialize;

use crate::plan::UNIT_MAX;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 200;

/// A part of a pattern or name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Rack,
    /// With so many digits at least.
    Unit(usize),
    Serial,
    Mac,
    /// Anything, at the end.
    Rest,
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
        return Err(format!("{text:?}: expected 1 to {PATTERN_BYTES_MAX} characters"));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(['{', '}']).unwrap_or(rest.len());
        let (plain, tail) = rest.split_at(at);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.to_owned()));
        }
        if tail.is_empty() {
            break;
        }
        let inner = tail.strip_prefix('{').and_then(|tail| tail.split_once('}'));
        let (inner, after) = inner.ok_or_else(|| format!("{text:?}: a brace without its other one"))?;
        parts.push(match inner {
            "rack" => Part::Rack,
            "unit" => Part::Unit(1),
            "unit:02" => Part::Unit(2),
            "unit:03" => Part::Unit(3),
            "serial" => Part::Serial,
            "mac" => Part::Mac,
            other => {
                return Err(format!(
                    "{text:?}: {{{other}}} is not known; expected {{rack}}, {{unit}}, {{unit:02}}, {{serial}} or {{mac}}"
                ));
            }
        });
        rest = after;
    }
    Ok(parts)
}

/// What a text says of where a machine stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Rack.
    pub rack: Option<String>,
    /// Unit.
    pub unit: Option<i32>,
}

/// A pattern: text, `{rack}` (letters, digits, `.`, `_`), `{unit}` (a number from 1 to 100), and `*` at its end. The
/// case of letters does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    parts: Vec<Part>,
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (fixed, has_rest) = match text.strip_suffix('*') {
            Some(fixed) => (fixed, true),
            None => (text.as_str(), false),
        };
        if fixed.contains('*') || fixed.is_empty() {
            return Err(format!("{text:?}: expected a '*' at the end only, behind some text"));
        }
        let mut parts = parts(fixed)?;
        if parts.iter().any(|part| matches!(part, Part::Serial | Part::Mac)) {
            return Err(format!("{text:?}: expected only {{rack}} and {{unit}} here"));
        }
        let is_place = |part: &Part| matches!(part, Part::Rack | Part::Unit(_));
        if parts.windows(2).any(|two| two.iter().all(is_place)) {
            return Err(format!("{text:?}: expected some text between {{rack}} and {{unit}}"));
        }
        let count = |wanted: fn(&Part) -> bool| parts.iter().filter(|part| wanted(part)).count();
        if count(|part| matches!(part, Part::Rack)) > 1 || count(|part| matches!(part, Part::Unit(_))) > 1 {
            return Err(format!("{text:?}: expected {{rack}} and {{unit}} once each"));
        }
        if has_rest {
            parts.push(Part::Rest);
        }
        Ok(Self { parts })
    }
}

impl Pattern {
    /// Whether a text fits, and what it says.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Found> {
        let mut found = Found::default();
        self.fits(0, text.trim(), &mut found).then_some(found)
    }

    /// Whether it takes out a rack or a unit.
    pub(super) fn gives(&self) -> (bool, bool) {
        let has = |wanted: fn(&Part) -> bool| self.parts.iter().any(wanted);
        (
            has(|part| matches!(part, Part::Rack)),
            has(|part| matches!(part, Part::Unit(_))),
        )
    }

    /// Takes the longest value first. At most two places and 200 characters: the work is bounded.
    fn fits(&self, at: usize, rest: &str, found: &mut Found) -> bool {
        let Some(part) = self.parts.get(at) else {
            return rest.is_empty();
        };
        let accepted: fn(char) -> bool = match part {
            Part::Text(text) => {
                let begins = rest
                    .get(..text.len())
                    .is_some_and(|begin| begin.eq_ignore_ascii_case(text));
                return begins && self.fits(at + 1, &rest[text.len()..], found);
            }
            Part::Rest => return true,
            Part::Rack => |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'),
            Part::Unit(_) => |c| c.is_ascii_digit(),
            Part::Serial | Part::Mac => return false,
        };
        let longest = rest.find(|c| !accepted(c)).unwrap_or(rest.len()).min(64);
        (1..=longest).rev().any(|length| {
            let (value, tail) = rest.split_at(length);
            match part {
                Part::Rack => found.rack = Some(value.to_owned()),
                _ => found.unit = value.parse().ok().filter(|unit| (1..=UNIT_MAX).contains(unit)),
            }
            (matches!(part, Part::Rack) || found.unit.is_some()) && self.fits(at + 1, tail, found)
        })
    }
}

/// A name to be made of what is known.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern {
    parts: Vec<Part>,
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = parts(&text)?;
        if !parts.iter().any(|part| !matches!(part, Part::Text(_))) {
            return Err(format!(
                "{text:?}: expected something that differs, such as {{unit}} or {{serial}}"
            ));
        }
        Ok(Self { parts })
    }
}

impl NamePattern {
    pub(super) fn needs(&self) -> (bool, bool) {
        let has = |wanted: fn(&Part) -> bool| self.parts.iter().any(wanted);
        (
            has(|part| matches!(part, Part::Rack)),
            has(|part| matches!(part, Part::Unit(_))),
        )
    }

    /// The name, in lower case.
    ///
    /// # Errors
    /// What is not known that it needs.
    pub fn render(&self, place: &Found, serial: Option<&str>, mac: Option<&str>) -> Result<String, String> {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Rack => name.push_str(place.rack.as_deref().ok_or("its rack is not known")?),
                Part::Unit(digits) => {
                    let unit = place.unit.ok_or("its unit is not known")?;
                    name.push_str(&format!("{unit:0digits$}"));
                }
                Part::Serial => name.push_str(serial.ok_or("its serial is not known")?),
                Part::Mac => name.push_str(&mac.ok_or("its MAC is not known")?.replace(':', "")),
                Part::Rest => {}
            }
        }
        Ok(name.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, text: &str) -> Option<(Option<String>, Option<i32>)> {
        let found = Pattern::try_from(pattern.to_owned()).unwrap().find(text)?;
        Some((found.rack, found.unit))
    }

    #[test]
    fn a_pattern_takes_rack_and_unit_out_of_a_port() {
        let r7 = Some("r7".to_owned());
        for (pattern, text, expected) in [
            (
                "leaf-{rack}:Ethernet{unit}",
                "leaf-r7:Ethernet12",
                Some((r7.clone(), Some(12))),
            ),
            (
                "leaf-{rack}:Ethernet{unit}/1",
                "LEAF-r7:ethernet12/1",
                Some((r7, Some(12))),
            ),
            ("leaf1:Eth{unit}", "leaf1:Eth101", None),
            ("leaf1:Eth{unit}", "leaf1:Eth", None),
            ("leaf1:Eth1", "leaf1:Eth12", None),
            ("leaf1:*", "leaf1:Eth12", Some((None, None))),
            ("leaf1:Eth{unit}*", "leaf1:Eth12/1", Some((None, Some(12)))),
        ] {
            assert_eq!(find(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        for (bad, words) in [
            ("", "expected"),
            ("*", "behind some text"),
            ("a*b", "at the end only"),
            ("{rack}{unit}", "text between"),
            ("{unit}-{unit}", "once each"),
            ("{slot}", "{slot} is not known"),
            ("x{unit", "brace"),
            ("x-{serial}", "only {rack} and {unit}"),
        ] {
            let error = Pattern::try_from(bad.to_owned()).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
        assert!(NamePattern::try_from("gpu".to_owned()).unwrap_err().contains("differs"));
    }

    #[test]
    fn a_name_says_what_it_lacks() {
        let name = NamePattern::try_from("gpu-{rack}-{unit:02}".to_owned()).unwrap();
        let place = |unit| Found {
            rack: Some("R1".to_owned()),
            unit,
        };
        assert_eq!(name.render(&place(Some(7)), None, None).unwrap(), "gpu-r1-07");
        assert_eq!(
            name.render(&place(None), None, None).unwrap_err(),
            "its unit is not known"
        );
        let serial = NamePattern::try_from("{serial}".to_owned()).unwrap();
        assert_eq!(serial.render(&place(None), Some("J1PX"), None).unwrap(), "j1px");
    }
}
