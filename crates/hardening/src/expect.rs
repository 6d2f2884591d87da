//! What a value is held against.

use serde::{Deserialize, Serialize};

/// A regular expression over one line; compiled when it is read, so that a bad one is an error of the profile.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(regex_lite::Regex);

impl Pattern {
    /// Whether the pattern is found in the text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        regex_lite::RegexBuilder::new(&text)
            .size_limit(1 << 20)
            .build()
            .map(Self)
            .map_err(|error| format!("{text:?} is no regular expression: {error}"))
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.as_str().to_owned()
    }
}

/// What a value must be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expect {
    /// One of these; letter case does not count.
    Is(Vec<String>),
    /// A number up to this one.
    AtMost(i64),
    /// A number from this one.
    AtLeast(i64),
    /// A number from the first to the second, both included.
    Between(i64, i64),
    /// A comma-separated list of nothing but these.
    Only(Vec<String>),
    /// Numbers with colons between, each up to the one here.
    FieldsAtMost(Vec<i64>),
    /// Matches the pattern.
    Matches(Pattern),
    /// Is set at all.
    Set(bool),
}

impl Expect {
    /// Whether the value is as expected; `None` stands for "not set".
    #[must_use]
    pub fn holds(&self, value: Option<&str>) -> bool {
        let Some(value) = value.map(str::trim) else {
            return matches!(self, Self::Set(false));
        };
        let number = || value.parse::<i64>().ok();
        match self {
            Self::Is(allowed) => allowed.iter().any(|one| one.eq_ignore_ascii_case(value)),
            Self::AtMost(most) => number().is_some_and(|number| number <= *most),
            Self::AtLeast(least) => number().is_some_and(|number| number >= *least),
            Self::Between(least, most) => number().is_some_and(|number| (*least..=*most).contains(&number)),
            Self::Only(allowed) => value
                .split(',')
                .all(|item| allowed.iter().any(|one| one.eq_ignore_ascii_case(item.trim()))),
            Self::FieldsAtMost(most) => {
                let fields: Vec<_> = value.split(':').map(|field| field.trim().parse::<i64>()).collect();
                fields.len() == most.len()
                    && fields
                        .iter()
                        .zip(most)
                        .all(|(field, most)| field.as_ref().is_ok_and(|field| field <= most))
            }
            Self::Matches(pattern) => pattern.is_match(value),
            Self::Set(set) => *set,
        }
    }

    /// In words, to stand after "expected".
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Is(allowed) => allowed.join(" or "),
            Self::AtMost(most) => format!("at most {most}"),
            Self::AtLeast(least) => format!("at least {least}"),
            Self::Between(least, most) => format!("{least} to {most}"),
            Self::Only(allowed) => format!("only {}", allowed.join(", ")),
            Self::FieldsAtMost(most) => {
                let most: Vec<_> = most.iter().map(ToString::to_string).collect();
                format!("at most {}", most.join(":"))
            }
            Self::Matches(pattern) => format!("matches {}", pattern.as_str()),
            Self::Set(true) => "set".to_owned(),
            Self::Set(false) => "not set".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_held_against_what_is_expected() {
        let is = |values: &[&str]| Expect::Is(values.iter().map(|&value| value.to_owned()).collect());
        let only = Expect::Only(vec!["a".to_owned(), "b".to_owned()]);
        let matches = Expect::Matches("^(core|x)$".to_owned().try_into().unwrap());
        for (expect, value, expected) in [
            (is(&["no"]), Some("No"), true),
            (is(&["no"]), Some("yes"), false),
            (is(&["no"]), None, false),
            (Expect::AtMost(4), Some("4"), true),
            (Expect::AtMost(4), Some("5"), false),
            (Expect::AtMost(4), Some("many"), false),
            (Expect::Between(1, 60), Some("0"), false),
            (Expect::AtLeast(1), Some("2"), true),
            (only.clone(), Some("b,a"), true),
            (only.clone(), Some("a,+b"), false),
            (only, Some(""), false),
            (Expect::FieldsAtMost(vec![10, 100, 60]), Some("10:30:60"), true),
            (Expect::FieldsAtMost(vec![10, 100, 60]), Some("10:30:100"), false),
            (Expect::FieldsAtMost(vec![10, 100, 60]), Some("10"), false),
            (matches.clone(), Some("core"), true),
            (matches, Some("/tmp/core"), false),
            (Expect::Set(true), Some(""), true),
            (Expect::Set(true), None, false),
            (Expect::Set(false), None, true),
        ] {
            assert_eq!(expect.holds(value), expected, "{} {value:?}", expect.in_words());
        }
    }

    #[test]
    fn a_bad_pattern_says_so() {
        let error = Pattern::try_from("(".to_owned()).unwrap_err();
        assert!(error.contains("no regular expression"), "{error}");
    }
}
