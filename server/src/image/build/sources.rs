//! Where a tree's packages come from, in apt's newer (deb822) format.
//!
//! A recipe that names no mirror is built from those that its build machine is set up to use, with the keys it trusts:
//! the machine says where, the recipe says which suite and components. Of another suite than the machine's own its
//! Debian mirrors are asked, too. Both of apt's formats are read; what apt would not use (disabled, source packages) is
//! left out. Further sources come from the recipe, each with the keyring that signs it.

use std::path::{Path, PathBuf};

use super::super::recipe::{AptSource, Beside, Distribution, PackagesBase};
use super::BuildError;

/// Largest keyring, in bytes.
const KEYRING_BYTES_MAX: u64 = 1 << 20;

/// Pockets that belong to a suite: the suite itself, its updates, its security fixes.
const POCKETS: [&str; 3] = ["", "-updates", "-security"];

/// The sources of a tree: the distribution's, from apt's folder (`/etc/apt`) where the recipe names no mirror, and the
/// recipe's others. Their keyrings are copied into the build's folder.
pub(super) fn text(apt: &Path, wanted: &PackagesBase, work: &Path) -> Result<String, BuildError> {
    let distribution = &wanted.distribution;
    let mut text = if distribution.mirror.is_some() {
        let keyring = wanted
            .keyring
            .as_ref()
            .map(|beside| keyring_copied(beside, "distribution", work));
        of_mirror(distribution, keyring.transpose()?.as_deref())
    } else {
        let release = apt.with_file_name("os-release");
        let own = std::fs::read_to_string(release).ok().and_then(|text| codename(&text));
        selected(read(apt)?, distribution, own.as_deref())?
    };
    for (source, beside) in &wanted.apt_sources {
        let keyring = keyring_copied(beside, source.name.as_str(), work)?;
        text.push('\n');
        text.push_str(&of_source(source, &keyring));
    }
    Ok(text)
}

/// One of the recipe's sources, with the keyring at this place.
pub(super) fn of_source(source: &AptSource, keyring: &Path) -> String {
    let mut text = format!("Types: deb\nURIs: {}\nSuites: {}\n", source.uri, source.suite);
    if !source.components.is_empty() {
        text.push_str(&format!("Components: {}\n", joined(&source.components)));
    }
    text + &format!("Signed-By: {}\n", keyring.display())
}

/// A keyring's content; apt tells by the name's end whether it is ASCII-armoured (`.asc`) or not (`.gpg`).
pub(super) fn keyring(beside: &Beside) -> Result<(Vec<u8>, &'static str), BuildError> {
    let path = beside.path();
    let failed = || BuildError::io(format!("reading the keyring {}", path.display()));
    let found = std::fs::metadata(&path).map_err(failed())?.len();
    if found > KEYRING_BYTES_MAX {
        let (what, limit) = ("keyring", KEYRING_BYTES_MAX);
        return Err(BuildError::Size { what, found, limit });
    }
    let content = std::fs::read(&path).map_err(failed())?;
    let extension = if content.starts_with(b"-----BEGIN PGP") {
        "asc"
    } else {
        "gpg"
    };
    Ok((content, extension))
}

fn keyring_copied(beside: &Beside, name: &str, work: &Path) -> Result<PathBuf, BuildError> {
    let (content, extension) = keyring(beside)?;
    let folder = work.join("keyrings");
    let path = folder.join(format!("{name}.{extension}"));
    let failed = || BuildError::io(format!("writing {}", path.display()));
    std::fs::create_dir_all(&folder).map_err(failed())?;
    std::fs::write(&path, content).map_err(failed())?;
    Ok(path)
}

fn of_mirror(distribution: &Distribution, keyring: Option<&Path>) -> String {
    let (suite, components) = (&distribution.suite, joined(&distribution.components.0));
    let signed = keyring.map_or_else(String::new, |path| format!("Signed-By: {}\n", path.display()));
    let stanza = |uri: &str, suites: &str| {
        format!("Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: {components}\n{signed}")
    };
    let mut text = String::new();
    if let Some(mirror) = &distribution.mirror {
        text.push_str(&stanza(mirror.as_str(), &format!("{suite} {suite}-updates")));
    }
    if let Some(mirror) = &distribution.security_mirror {
        text.push('\n');
        text.push_str(&stanza(mirror.as_str(), &format!("{suite}-security")));
    }
    text
}

fn joined<T: ToString>(words: &[T]) -> String {
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// `VERSION_CODENAME` of `os-release`.
fn codename(os_release: &str) -> Option<String> {
    let value = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// The sources of apt's folder.
fn read(apt: &Path) -> Result<Vec<Stanza>, BuildError> {
    let mut stanzas = Vec::new();
    let list = apt.join("sources.list");
    if list.exists() {
        stanzas.extend(from_list(&read_text(&list)?));
    }
    let parts = apt.join("sources.list.d");
    let mut files = Vec::new();
    if parts.exists() {
        let failed = || BuildError::io(format!("reading {}", parts.display()));
        for file in std::fs::read_dir(&parts).map_err(failed())? {
            files.push(file.map_err(failed())?.path());
        }
    }
    files.sort();
    for file in files {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => stanzas.extend(from_list(&read_text(&file)?)),
            Some("sources") => stanzas.extend(from_stanzas(&read_text(&file)?)),
            _ => {}
        }
    }
    Ok(stanzas)
}

/// The sources for this suite, as text. `own` is the build machine's suite: where nothing is said of the wanted one, the
/// archive that brought the machine itself is asked.
fn selected(stanzas: Vec<Stanza>, distribution: &Distribution, own: Option<&str>) -> Result<String, BuildError> {
    let suite = distribution.suite.as_str();
    // Updates alone make no system.
    let has_base =
        |stanzas: &[Stanza], suite: &str| stanzas.iter().any(|stanza| stanza.suites.iter().any(|s| s == suite));
    let mut found: Vec<Stanza> = stanzas
        .iter()
        .filter_map(|stanza| stanza.clone().cut_to(distribution, suite))
        .collect();
    if let Some(own) = own.filter(|_| !has_base(&found, suite)) {
        let debian = stanzas.into_iter().filter(Stanza::is_debian);
        found = debian.filter_map(|stanza| stanza.cut_to(distribution, own)).collect();
    }
    if !has_base(&found, suite) {
        return Err(BuildError::NoSource {
            suite: suite.to_owned(),
            components: joined(&distribution.components.0),
        });
    }
    Ok(found.iter().map(Stanza::text).collect::<Vec<_>>().join("\n"))
}

fn read_text(path: &Path) -> Result<String, BuildError> {
    std::fs::read_to_string(path).map_err(BuildError::io(format!("reading {}", path.display())))
}

/// One source as apt understands it.
#[derive(Clone, Debug, Default)]
struct Stanza {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// Whatever else was said of it (`Signed-By`, `Trusted`, …), by field name.
    options: Vec<(String, String)>,
}

impl Stanza {
    /// Whether it is of Debian's own archive, by the keyring that signs it.
    fn is_debian(&self) -> bool {
        let mut signed = self
            .options
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("signed-by"));
        signed.all(|(_, value)| value.contains("debian-archive"))
    }

    /// What it is for the wanted suite, if it has the pockets of `suite` and any of the wanted components: one that has
    /// some has them all.
    fn cut_to(mut self, distribution: &Distribution, suite: &str) -> Option<Self> {
        let wanted = &distribution.components.0;
        let pocket = |known: &String| {
            let pocket = known.strip_prefix(suite).filter(|pocket| POCKETS.contains(pocket))?;
            Some(format!("{}{pocket}", distribution.suite))
        };
        self.suites = self.suites.iter().filter_map(pocket).collect();
        let has_some = wanted
            .iter()
            .any(|word| self.components.iter().any(|known| known == word.as_str()));
        self.components = wanted.iter().map(ToString::to_string).collect();
        (has_some && !self.uris.is_empty() && !self.suites.is_empty()).then_some(self)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\n",
            self.uris.join(" "),
            self.suites.join(" "),
            self.components.join(" ")
        );
        for (name, value) in &self.options {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// `sources.list(5)`, one line a source.
fn from_list(text: &str) -> Vec<Stanza> {
    let parse = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let mut fields = words(rest).into_iter();
        Some(Stanza {
            uris: fields.next().into_iter().collect(),
            suites: fields.next().into_iter().collect(),
            components: fields.collect(),
            options: words(options).iter().filter_map(|option| option_of(option)).collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// An option of the one-line format under its deb822 name.
fn option_of(option: &str) -> Option<(String, String)> {
    let (name, value) = option.split_once('=')?;
    let name = match name {
        "signed-by" => "Signed-By",
        "trusted" => "Trusted",
        "check-valid-until" => "Check-Valid-Until",
        "check-date" => "Check-Date",
        _ => return None,
    };
    Some((name.to_owned(), value.replace(',', " ")))
}

/// The deb822 format: paragraphs of `Field: value`, continued on lines that start with white space.
fn from_stanzas(text: &str) -> Vec<Stanza> {
    let mut stanzas = Vec::new();
    let lines: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    for paragraph in lines.split("\n\n") {
        let mut stanza = Stanza::default();
        let (mut enabled, mut binary) = (true, false);
        // An embedded key is many lines; they stay as they are.
        for field in super::facts::paragraph_fields(paragraph) {
            match field.name.to_ascii_lowercase().as_str() {
                "types" => binary = words(&field.value).iter().any(|kind| kind == "deb"),
                "uris" => stanza.uris = words(&field.value),
                "suites" => stanza.suites = words(&field.value),
                "components" => stanza.components = words(&field.value),
                "enabled" => enabled = !matches!(field.value.trim(), "no" | "false" | "0" | "off"),
                "signed-by" | "trusted" | "check-valid-until" | "check-date" => {
                    stanza.options.push((field.name.to_owned(), field.value));
                }
                _ => {}
            }
        }
        if enabled && binary {
            stanzas.push(stanza);
        }
    }
    stanzas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources_of(files: &[(&str, &str)]) -> Result<String, BuildError> {
        sources_for("{suite: bookworm, components: [main]}", files)
    }

    /// On a machine that runs bookworm.
    fn sources_for(distribution: &str, files: &[(&str, &str)]) -> Result<String, BuildError> {
        let apt = tempfile::tempdir().unwrap();
        std::fs::create_dir(apt.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            std::fs::write(apt.path().join(name), text).unwrap();
        }
        let distribution = yaml::parse(Path::new("x"), distribution).unwrap();
        selected(read(apt.path())?, &distribution, Some("bookworm"))
    }

    #[test]
    fn only_the_suite_of_the_recipe_is_taken() {
        let text = sources_of(&[
            (
                "sources.list.d/debian.sources",
                "# comment\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates trixie\n\
                 Components: main contrib\nSigned-By: /usr/share/keyrings/debian.gpg\n\n\
                 Types: deb\nURIs: http://other.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n",
            ),
            ("sources.list.d/vendor.list", "deb https://vendor.example/apt cloud-bookworm main\n"),
            (
                "sources.list",
                "deb-src http://a.example/debian bookworm main\n\
                 deb [signed-by=/k.gpg arch=amd64] http://sec.example/s bookworm-security main # fixes\n",
            ),
        ])
        .unwrap();
        assert_eq!(
            text,
            "Types: deb\nURIs: http://sec.example/s\nSuites: bookworm-security\nComponents: main\nSigned-By: /k.gpg\n\n\
             Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian.gpg\n"
        );
    }

    #[test]
    fn the_recipe_says_which_components_and_the_machine_where_they_are() {
        let text = sources_for(
            "{suite: bookworm, components: [main, non-free-firmware]}",
            &[(
                "sources.list",
                "deb http://a.example/d bookworm main\ndeb http://v.example/d bookworm vendor\n",
            )],
        )
        .unwrap();
        assert_eq!(
            text,
            "Types: deb\nURIs: http://a.example/d\nSuites: bookworm\nComponents: main non-free-firmware\n"
        );
    }

    #[test]
    fn another_release_comes_from_the_archive_that_brought_the_machine() {
        let text = sources_for(
            "{suite: trixie, components: [main]}",
            &[(
                "sources.list",
                "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://a.example/d bookworm main\n\
                 deb http://a.example/s bookworm-security main\n\
                 deb [signed-by=/vendor.gpg] http://vendor.example/d bookworm main\n",
            )],
        )
        .unwrap();
        assert_eq!(
            text,
            "Types: deb\nURIs: http://a.example/d\nSuites: trixie\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
             Types: deb\nURIs: http://a.example/s\nSuites: trixie-security\nComponents: main\n"
        );
    }

    #[test]
    fn a_machine_without_the_suite_is_told_so() {
        let error = sources_of(&[("sources.list", "deb http://a.example/d trixie main\n")]).unwrap_err();
        assert!(
            error.to_string().starts_with("no package source for bookworm main"),
            "{error}"
        );
    }

    #[test]
    fn this_kind_of_embedded_key_survives() {
        let key = " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----";
        let source = format!("Types: deb\nURIs: http://m\nSuites: bookworm\nComponents: main\nSigned-By:\n{key}\n");
        let text = sources_of(&[("sources.list.d/a.sources", &source)]).unwrap();
        assert!(text.contains(&format!("Signed-By: \n{key}\n")), "{text}");
    }
}
