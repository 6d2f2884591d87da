//! The small words of a recipe, checked while it is read, so that an error has its line and column.
//!
//! Invariant: a word that ends up as an argument of a package tool holds nothing that such a tool could read as an
//! option or a list.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// Makes a checked string type: its name, what it is, its check, and what was expected.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident, $check:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
        #[serde(try_from = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    return Ok(Self(text));
                }
                Err(format!("{text:?}: expected {}", $expected))
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

word!(
    /// An image's name.
    ImageName,
    |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.len() <= 64
            && text.chars().all(plain)
    },
    "at most 64 of a-z, 0-9, '.' and '-', starting with a letter or digit"
);

word!(
    /// A package, suite, component, module, or variant.
    Word,
    |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+._-:".contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 128 && text.chars().all(plain)
    },
    "letters, digits and '+', '.', '_', '-', ':', starting with a letter or digit"
);

word!(
    /// A unit with its suffix.
    UnitName,
    |text| {
        let known = ["service", "socket", "timer", "target", "mount", "path", "slice"];
        let suffix = text.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        !text.starts_with('-') && !text.contains(['/', ' ', '\n']) && text.len() <= 255 && known.contains(&suffix)
    },
    "a unit name with its suffix"
);

word!(
    /// A sysctl's key, dotted.
    SysctlKey,
    |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/*".contains(c);
        !text.is_empty() && text.len() <= 255 && text.chars().all(plain)
    },
    "a dotted key"
);

word!(
    /// A sysctl's value.
    SysctlValue,
    |text| !text.is_empty() && text.len() <= 1024 && !text.contains(['\n', '\r', '#', ';']),
    "a plain value"
);

word!(
    /// One line of text.
    Line,
    |text| text.len() <= 4096 && !text.contains(['\n', '\r', '\0']),
    "one line"
);

word!(
    /// The name of a user or group.
    AccountName,
    |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && text.len() <= 32 && text.chars().all(plain)
    },
    "at most 32 of a-z, 0-9, '_' and '-', starting with a letter"
);

word!(
    /// A URL that packages come from.
    MirrorUrl,
    |text| {
        let known = ["http://", "https://", "file:///"];
        known.iter().any(|scheme| text.starts_with(scheme)) && !text.contains([' ', '\n', '\t', '"']) && text.len() <= 1024
    },
    "an http://, https:// or file:/// URL"
);

word!(
    /// A suite of an apt source: a name, or an exact path that ends in `/`.
    SuiteName,
    |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+._-/".contains(c);
        !text.is_empty() && text.len() <= 128 && text.chars().all(plain)
    },
    "a suite's name, or a path that ends in /"
);

word!(
    /// A file beside the recipe, by its relative path.
    BesideName,
    |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+._-/".contains(c);
        !text.is_empty()
            && text.len() <= 255
            && text.chars().all(plain)
            && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    },
    "the relative path of a file beside the recipe"
);

/// Permission bits, written as octal digits in quotes (`"0600"`), since YAML reads a bare 0600 as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct OctalMode(pub u32);

impl TryFrom<String> for OctalMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mode = u32::from_str_radix(&text, 8)
            .ok()
            .filter(|mode| text.len() == 4 && *mode <= 0o7777);
        mode.map(Self)
            .ok_or_else(|| format!("mode {text:?}: expected four octal digits in quotes, as \"0644\""))
    }
}

/// How long each hook may take, in seconds: 1 to 86,400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
pub struct HookSecs(#[schemars(range(min = 1, max = 86_400))] pub u32);

impl TryFrom<u32> for HookSecs {
    type Error = String;

    fn try_from(secs: u32) -> Result<Self, Self::Error> {
        match (1..=86_400).contains(&secs) {
            true => Ok(Self(secs)),
            false => Err(format!("{secs}: expected 1 to 86400 seconds")),
        }
    }
}
