//! Text that may come from a node, made safe for a terminal; instants as people read them.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Escapes what would steer a terminal or turn the direction of text: nobody's node name moves the cursor.
#[must_use]
pub fn cell(text: &str) -> String {
    escape(text, |_| false)
}

/// As [`cell`], for text whose line ends are the program's own.
#[must_use]
pub fn lines(text: &str) -> String {
    escape(text, |c| c == '\n')
}

/// JSON as the server gave it; what a terminal would obey becomes `\u00xx`, which JSON reads the same.
#[must_use]
pub fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && steers(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) && !keep(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Control characters, and Unicode's marks of direction (UAX #9): explicit ones and isolates.
fn steers(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_direction || matches!(c, '\u{2028}' | '\u{2029}')
}

/// `1 node`, `2 nodes`.
#[must_use]
pub fn count(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// What rendering depends on beside the data.
#[derive(Clone, Debug)]
pub struct Context {
    /// Now.
    pub now: Timestamp,
    /// Where the reader is.
    pub zone: TimeZone,
    /// Columns of the terminal; none: no terminal, nothing is folded.
    pub width: Option<u16>,
}

impl Context {
    /// `3 m ago`, or `in 5 m`.
    #[must_use]
    pub fn age(&self, at: Timestamp) -> String {
        let secs = self.now.as_second() - at.as_second();
        let text = match secs.unsigned_abs() {
            secs @ 0..=99 => format!("{secs} s"),
            secs @ 100..=5_999 => format!("{} m", secs / 60),
            secs @ 6_000..=172_799 => format!("{} h", secs / 3_600),
            secs => format!("{} d", secs / 86_400),
        };
        if secs < 0 {
            format!("in {text}")
        } else {
            format!("{text} ago")
        }
    }

    /// As [`Context::age`]; `-` for never.
    #[must_use]
    pub fn age_or_never(&self, at: Option<Timestamp>) -> String {
        at.map_or_else(|| "-".to_owned(), |at| self.age(at))
    }

    /// The reader's own clock: `2026-01-02 03:04:05`.
    #[must_use]
    pub fn local(&self, at: Timestamp) -> String {
        at.to_zoned_datetime(self.zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string()
    }

    /// Both: `3 m ago (2026-01-02 03:04:05 CET)`.
    #[must_use]
    pub fn age_and_local(&self, at: Timestamp) -> String {
        let local = at
            .to_zoned_datetime(self.zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S %Z")
            .to_string();
        format!("{} ({local})", self.age(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AIDE CVE-2025-54389, aide/aide#189: names and values of a node are shown and obeyed by nobody.
    #[test]
    fn aide_cve_2025_54389_nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(cell("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(cell("x\ny\t\u{9b}31m\u{202e}z"), "x\\ny\\t\\u{9b}31m\\u{202e}z");
        assert_eq!(cell("Grüße 漢字"), "Grüße 漢字");
        assert_eq!(lines("one\ntwo\r"), "one\ntwo\\r");
        let value = serde_json::json!({"a": "\u{1b}\u{7f}\u{9b}\u{202e}"});
        let shown = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(shown.chars().all(|c| c == '\n' || !steers(c)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn instants_read_as_ages() {
        let context = Context {
            now: "2026-01-02T12:00:00Z".parse().unwrap(),
            zone: TimeZone::UTC,
            width: None,
        };
        for (at, text) in [
            ("2026-01-02T12:00:00Z", "0 s ago"),
            ("2026-01-02T11:57:00Z", "3 m ago"),
            ("2026-01-02T08:00:00Z", "4 h ago"),
            ("2025-12-24T12:00:00Z", "9 d ago"),
            ("2026-01-02T12:05:00Z", "in 5 m"),
        ] {
            assert_eq!(context.age(at.parse().unwrap()), text);
        }
        let at = "2026-01-02T11:57:00Z".parse().unwrap();
        assert_eq!(context.age_and_local(at), "3 m ago (2026-01-02 11:57:00 UTC)");
    }
}
