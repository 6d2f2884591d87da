//! License expressions from Debian's `copyright` files, where those are in the form that machines read (DEP 5, the
//! "machine-readable debian/copyright file").
//!
//! The expression joins what the file says of all files of the source package: a package of two files, one under the GPL
//! and one under the MIT license, is under both. Names that SPDX does not know become references (`LicenseRef-…`), never
//! guesses.

use std::collections::BTreeSet;

use super::paragraphs::paragraphs;

/// Most distinct licenses of one package; nobody reads an expression of more.
const LICENSES_MAX: usize = 64;
/// Longest name of a license, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// What begins the name of a license that SPDX does not know.
pub const REFERENCE: &str = "LicenseRef-";

/// Debian's short names, in lower case, and SPDX's identifiers.
const KNOWN: [(&str, &str); 66] = [
    ("0bsd", "0BSD"),
    ("agpl-3", "AGPL-3.0-only"),
    ("agpl-3+", "AGPL-3.0-or-later"),
    ("apache-2", "Apache-2.0"),
    ("apache-2.0", "Apache-2.0"),
    ("artistic", "Artistic-1.0-Perl"),
    ("artistic-1", "Artistic-1.0"),
    ("artistic-2", "Artistic-2.0"),
    ("artistic-2.0", "Artistic-2.0"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("bsd-2", "BSD-2-Clause"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd-3", "BSD-3-Clause"),
    ("bsd-4-clause", "BSD-4-Clause"),
    ("bsd-4-clause-uc", "BSD-4-Clause-UC"),
    ("bsl-1", "BSL-1.0"),
    ("bsl-1.0", "BSL-1.0"),
    ("bzip2-1.0.6", "bzip2-1.0.6"),
    ("cc0", "CC0-1.0"),
    ("cc0-1.0", "CC0-1.0"),
    ("cc-by-3.0", "CC-BY-3.0"),
    ("cc-by-4.0", "CC-BY-4.0"),
    ("cc-by-sa-3.0", "CC-BY-SA-3.0"),
    ("cc-by-sa-4.0", "CC-BY-SA-4.0"),
    ("cddl-1.0", "CDDL-1.0"),
    ("curl", "curl"),
    ("expat", "MIT"),
    ("fsfap", "FSFAP"),
    ("fsful", "FSFUL"),
    ("fsfullr", "FSFULLR"),
    ("gfdl-1.2+", "GFDL-1.2-or-later"),
    ("gfdl-1.3", "GFDL-1.3-only"),
    ("gfdl-1.3+", "GFDL-1.3-or-later"),
    ("gpl-1", "GPL-1.0-only"),
    ("gpl-1+", "GPL-1.0-or-later"),
    ("gpl-2", "GPL-2.0-only"),
    ("gpl-2.0", "GPL-2.0-only"),
    ("gpl-2+", "GPL-2.0-or-later"),
    ("gpl-2.0+", "GPL-2.0-or-later"),
    ("gpl-3", "GPL-3.0-only"),
    ("gpl-3.0", "GPL-3.0-only"),
    ("gpl-3+", "GPL-3.0-or-later"),
    ("gpl-3.0+", "GPL-3.0-or-later"),
    ("isc", "ISC"),
    ("lgpl-2", "LGPL-2.0-only"),
    ("lgpl-2+", "LGPL-2.0-or-later"),
    ("lgpl-2.0+", "LGPL-2.0-or-later"),
    ("lgpl-2.1", "LGPL-2.1-only"),
    ("lgpl-2.1+", "LGPL-2.1-or-later"),
    ("lgpl-3", "LGPL-3.0-only"),
    ("lgpl-3+", "LGPL-3.0-or-later"),
    ("lgpl-3.0+", "LGPL-3.0-or-later"),
    ("mit", "MIT"),
    ("mit-0", "MIT-0"),
    ("mpl-1.1", "MPL-1.1"),
    ("mpl-2.0", "MPL-2.0"),
    ("ofl-1.1", "OFL-1.1"),
    ("openssl", "OpenSSL"),
    ("python-2.0", "Python-2.0"),
    ("psf-2", "PSF-2.0"),
    ("sil-1.1", "OFL-1.1"),
    ("unicode-dfs-2016", "Unicode-DFS-2016"),
    ("unlicense", "Unlicense"),
    ("x11", "X11"),
    ("zlib", "Zlib"),
    ("zpl-2.1", "ZPL-2.1"),
];

/// The license expression of a package, from its copyright file; none when that is written for people only.
#[must_use]
pub fn license(text: &str) -> Option<String> {
    let mut all = paragraphs(text);
    let head = all.next()?;
    if !head
        .first("Format")
        .is_some_and(|format| format.contains("copyright-format") || format.contains("/dep5"))
    {
        return None;
    }
    let of_files = all.filter(|paragraph| paragraph.has("Files"));
    let named = [head]
        .into_iter()
        .chain(of_files)
        .filter_map(|paragraph| paragraph.first("License"));
    let expressions: BTreeSet<String> = named.filter_map(expression).collect();
    if expressions.is_empty() || expressions.len() > LICENSES_MAX {
        return None;
    }
    let several = expressions.len() > 1;
    let parts: Vec<String> = expressions
        .into_iter()
        .map(|one| if several { grouped(&one, "OR") } else { one })
        .collect();
    Some(parts.join(" AND "))
}

/// `GPL-2+ or Artistic, and Expat` as SPDX writes it. "and" binds more than "or", and a comma less than both.
fn expression(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let split = |words: &'static str| -> Option<(&str, &str)> {
        // Bytes of ASCII words lie at the same places in both.
        let at = lower.find(words)?;
        Some((text.get(..at)?, text.get(at + words.len()..)?))
    };
    for (words, joined) in [(", and ", "AND"), (", or ", "OR"), (" or ", "OR"), (" and ", "AND")] {
        if let Some((left, right)) = split(words) {
            let (left, right) = (expression(left)?, expression(right)?);
            return Some(match joined {
                "AND" => format!("{} AND {}", grouped(&left, "OR"), grouped(&right, "OR")),
                _ => format!("{} OR {}", grouped(&left, "AND"), grouped(&right, "AND")),
            });
        }
    }
    Some(atom(text.trim_end_matches(',')))
}

/// In parentheses when it is joined by this word at all.
fn grouped(expression: &str, by: &str) -> String {
    match expression.contains(&format!(" {by} ")) {
        true => format!("({expression})"),
        false => expression.to_owned(),
    }
}

fn atom(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if let Some((_, known)) = KNOWN.iter().find(|(ours, _)| *ours == lower) {
        return (*known).to_owned();
    }
    let mut reference = REFERENCE.to_owned();
    for part in name
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .filter(|part| !part.is_empty())
    {
        if reference.len() > REFERENCE.len() {
            reference.push('-');
        }
        reference.push_str(part);
    }
    if reference.len() == REFERENCE.len() {
        reference.push_str("unnamed");
    } else if lower.contains('+') {
        // `GPL-2+ with x` and `GPL-2 with x` are two licenses.
        reference.push_str("-or-later");
    }
    reference
}
