//! The machine's own package sources: which Debian mirror it uses, in both of apt's formats (sources.list(5)).
//!
//! A site's machines often reach only the site's mirror, so no host name stands in this repository.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Suites of Debian's main archive. Security and third-party archives name theirs otherwise.
const DEBIAN_SUITES: [&str; 11] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "bookworm-updates",
];

/// One archive of a source entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

/// The URI of the Debian mirror that this machine installs from.
///
/// # Errors
/// When no source is one of Debian's main archive by HTTP.
pub fn debian_mirror() -> Result<String> {
    let texts = source_files(Path::new("/etc/apt")).into_iter().filter_map(|path| {
        let deb822 = path.extension().is_some_and(|extension| extension == "sources");
        Some((deb822, fs::read_to_string(path).ok()?))
    });
    let sources: Vec<Source> = texts
        .flat_map(|(deb822, text)| {
            if deb822 {
                parse_deb822(&text)
            } else {
                parse_one_line(&text)
            }
        })
        .collect();
    mirror_of(&sources).context("no Debian mirror in /etc/apt/sources.list or sources.list.d")
}

/// `sources.list`, then the files of `sources.list.d` that apt reads, sorted.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten();
    let mut parts: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "list" || extension == "sources")
        })
        .collect();
    parts.sort();
    parts.insert(0, folder.join("sources.list"));
    parts
}

/// The first archive that carries a Debian suite's `main` and is reached by HTTP.
fn mirror_of(sources: &[Source]) -> Option<String> {
    let is_debian = |source: &&Source| {
        source.uri.starts_with("http")
            && source
                .suites
                .iter()
                .any(|suite| DEBIAN_SUITES.contains(&suite.as_str()))
            && source.components.iter().any(|component| component == "main")
    };
    sources
        .iter()
        .find(is_debian)
        .map(|source| source.uri.trim_end_matches('/').to_owned())
}

/// Lines such as `deb [arch=amd64] URI SUITE COMPONENT…`.
fn parse_one_line(text: &str) -> Vec<Source> {
    let parse = |line: &str| {
        let line = line.split('#').next()?.trim();
        let rest = line.strip_prefix("deb")?;
        // Not `deb-src`.
        let rest = rest
            .strip_prefix([' ', '\t', '['].as_slice())
            .map(|_| rest.trim_start())?;
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        Some(Source {
            uri: words.next()?,
            suites: vec![words.next()?],
            components: words.collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Stanzas of `Types:`, `URIs:`, `Suites:`, `Components:`; a field goes on in lines that start with a blank.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')).chain([""]) {
        if line.trim().is_empty() {
            sources.extend(sources_of_stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn sources_of_stanza(fields: &[(String, String)]) -> Vec<Source> {
    let words = |name: &str| -> Vec<String> {
        let value = fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str());
        value
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let enabled = words("enabled").first().is_none_or(|value| value != "no");
    if !enabled || !words("types").iter().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let source = |uri| Source {
        uri,
        suites: words("suites"),
        components: words("components"),
    };
    words("uris").into_iter().map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_entries_with_options_and_comments() {
        let text = "\
            # deb http://commented.example/debian bookworm main\n\
            deb-src http://source.example/debian bookworm main\n\
            deb https://third.example/apt cloud-bookworm main\n\
            deb http://security.example/debian-security bookworm-security main\n\
            deb\t[arch=amd64 signed-by=/a b]  http://mirror.example/debian/ bookworm main contrib # ours\n";
        let sources = parse_one_line(text);
        assert_eq!(sources.len(), 3);
        assert_eq!(sources[2].components, ["main", "contrib"]);
        assert_eq!(mirror_of(&sources).as_deref(), Some("http://mirror.example/debian"));
    }

    #[test]
    fn deb822_stanzas_with_comments_continuations_and_disabled_ones() {
        let text = "\
Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

types: deb
URIs:
# http://commented.example/debian
 https://mirror.example/debian
Suites: bookworm-backports bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";
        assert_eq!(
            mirror_of(&parse_deb822(text)).as_deref(),
            Some("https://mirror.example/debian")
        );
    }

    #[test]
    fn a_machine_without_a_debian_mirror_has_none() {
        let third = parse_deb822("Types: deb\nURIs: https://third.example\nSuites: nodistro\nComponents: main\n");
        assert_eq!(mirror_of(&third), None);
        assert_eq!(
            mirror_of(&parse_one_line(
                "deb cdrom:[Debian 12]/ bookworm main\ndeb file:/srv/debian bookworm main\ndeb"
            )),
            None
        );
    }
}
