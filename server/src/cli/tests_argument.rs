//! Tests of a burn-in on the command line: `memory`, or `memory=2h`.

use protocol::latest::TestKind;
use serde_json::{Value, json};

/// A test that a person names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestArgument {
    kind: TestKind,
    limit_secs: Option<u32>,
}

impl TestArgument {
    /// Reads `KIND` or `KIND=LIMIT`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, limit) = match text.split_once('=') {
            Some((name, limit)) => (name, Some(limit)),
            None => (text, None),
        };
        let kinds: Vec<&str> = TestKind::ALL.into_iter().map(TestKind::as_str).collect();
        let kind = TestKind::parse(name).ok_or_else(|| format!("{name:?}: expected one of {}", kinds.join(", ")))?;
        Ok(Self {
            kind,
            limit_secs: limit.map(secs).transpose()?,
        })
    }

    /// As the API takes it.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({ "kind": self.kind, "limit_secs": self.limit_secs })
    }
}

/// `90s`, `30m`, `12h`, `2d`, in seconds.
fn secs(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?}: expected a number with s, m, h or d, such as 30m");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let factor: u32 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = text
        .strip_suffix(unit)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(wrong)?;
    number.checked_mul(factor).filter(|secs| *secs > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_with_or_without_its_limit() {
        let parsed = |text| TestArgument::parse(text).map(|test| (test.kind, test.limit_secs));
        assert_eq!(parsed("cpu"), Ok((TestKind::Cpu, None)));
        assert_eq!(parsed("memory=12h"), Ok((TestKind::Memory, Some(43_200))));
        assert_eq!(parsed("disk=90s"), Ok((TestKind::Disk, Some(90))));
        for wrong in [
            "ram",
            "memory=",
            "memory=5",
            "memory=h",
            "memory=0m",
            "memory=99999999d",
            "",
            "cpu=5µ",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
