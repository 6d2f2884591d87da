//! Bills of materials: which packages an image is made of, in the two forms that tools read.
//!
//! A bill says of each package its name, version, architecture, source package, maintainer, license and purl. It is made
//! from what the package tools left in the tree, is the same for the same image to the byte (its time is the image's), and
//! lies beside the manifest. It is not part of what is signed: the manifest's header names the same packages with the same
//! versions.
//!
//! Only `root` touches a file; all else turns values into values.

pub mod copyright;
mod cyclonedx;
pub mod dpkg;
mod paragraphs;
pub mod root;
mod spdx;

use manifest::{Digest, Header, ManifestKind, Package};

use super::store::Document;

/// Largest bill that is read, in bytes.
pub const BILL_BYTES_MAX: u64 = 64 << 20;

/// A form of a bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SbomFormat {
    /// CycloneDX 1.6, JSON.
    Cyclonedx,
    /// SPDX 2.3, JSON.
    Spdx,
}

impl SbomFormat {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Cyclonedx, Self::Spdx];

    /// Where it lies in the store.
    #[must_use]
    pub const fn document(self) -> Document {
        match self {
            Self::Cyclonedx => Document::Cyclonedx,
            Self::Spdx => Document::Spdx,
        }
    }

    /// Its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Cyclonedx => "application/vnd.cyclonedx+json; version=1.6",
            Self::Spdx => "application/spdx+json",
        }
    }
}

/// What an image is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bill {
    /// Digest of the image.
    pub digest: Digest,
    /// Kind of the image.
    pub kind: ManifestKind,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its line for people.
    pub description: Option<String>,
    /// Its packages, sorted.
    pub components: Vec<Component>,
}

/// A package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// Name.
    pub name: String,
    /// Architecture.
    pub architecture: String,
    /// Version.
    pub version: String,
    /// Name and version of the source package, where the package tools say it.
    pub source: Option<(String, String)>,
    /// Who maintains it, and their address.
    pub supplier: Option<Supplier>,
    /// SPDX license expression of all that is in it; none where nobody says so in a form that machines read.
    pub license: Option<String>,
    /// Package URL.
    pub purl: String,
}

/// Who maintains a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Supplier {
    /// Name.
    pub name: String,
    /// Mail address.
    pub email: Option<String>,
}

/// The distribution that packages are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// `ID` of os-release: `debian`, `rocky`.
    pub id: String,
    /// `VERSION_ID` of os-release: `12`.
    pub version: Option<String>,
}

impl Distribution {
    /// Reads os-release; a file without `ID` is of `linux`, as the manual says.
    #[must_use]
    pub fn parse(os_release: &str) -> Self {
        let value = |name: &str| {
            let lines = os_release.lines().filter_map(|line| line.split_once('='));
            let found = lines
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .next_back()?;
            let value = found.trim().trim_matches(['"', '\'']);
            (!value.is_empty()).then(|| value.to_owned())
        };
        Self {
            id: value("ID").unwrap_or_else(|| "linux".to_owned()),
            version: value("VERSION_ID"),
        }
    }

    fn purl(&self, kind: &str, name: &str, version: &str, qualifiers: &[(&str, &str)]) -> String {
        let mut purl = format!(
            "pkg:{kind}/{}/{}@{}",
            escaped(&self.id),
            escaped(name),
            escaped(version)
        );
        let distribution = match &self.version {
            Some(version) => format!("{}-{version}", self.id),
            None => self.id.clone(),
        };
        let mut mark = '?';
        for (key, value) in qualifiers.iter().copied().chain([("distro", distribution.as_str())]) {
            purl.push_str(&format!("{mark}{key}={}", escaped(value)));
            mark = '&';
        }
        purl
    }
}

/// As package URLs escape.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl Component {
    /// A package of which the manifest alone is known.
    #[must_use]
    pub fn of_deb(package: &Package, distribution: &Distribution) -> Self {
        let Package {
            name,
            architecture,
            version,
        } = package.clone();
        let purl = distribution.purl("deb", &name, &version, &[("arch", &architecture)]);
        Self {
            name,
            architecture,
            version,
            source: None,
            supplier: None,
            license: None,
            purl,
        }
    }

    /// A package of an rpm database: its epoch is a part of its version for people, and apart in its purl.
    #[must_use]
    pub fn of_rpm(
        name: &str,
        epoch: Option<u32>,
        version_release: &str,
        architecture: Option<&str>,
        distribution: &Distribution,
    ) -> Self {
        let epoch_text = epoch.map(|epoch| epoch.to_string());
        let mut qualifiers = Vec::new();
        qualifiers.extend(architecture.map(|architecture| ("arch", architecture)));
        qualifiers.extend(epoch_text.as_deref().map(|epoch| ("epoch", epoch)));
        Self {
            name: name.to_owned(),
            architecture: architecture.unwrap_or("noarch").to_owned(),
            version: match epoch {
                Some(epoch) => format!("{epoch}:{version_release}"),
                None => version_release.to_owned(),
            },
            source: None,
            supplier: None,
            license: None,
            purl: distribution.purl("rpm", name, version_release, &qualifiers),
        }
    }
}

impl Bill {
    /// A bill of an image; components are sorted, and each is in it once.
    #[must_use]
    pub fn new(digest: Digest, header: &Header, mut components: Vec<Component>) -> Self {
        components.sort();
        components.dedup_by(|a, b| a.purl == b.purl);
        Self {
            digest,
            kind: header.kind,
            name: header.name.clone(),
            version: header.version.clone(),
            description: header.description.clone(),
            components,
        }
    }

    /// The bill as a file.
    ///
    /// # Errors
    /// Never for values of this type.
    pub fn encode(&self, format: SbomFormat) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = match format {
            SbomFormat::Cyclonedx => serde_json::to_vec_pretty(&cyclonedx::document(self)),
            SbomFormat::Spdx => serde_json::to_vec_pretty(&spdx::document(self)),
        }?;
        text.push(b'\n');
        Ok(text)
    }

    /// The image's time, which begins its version (`20260102T030405Z`); the beginning of time where it does not.
    fn instant(&self) -> String {
        let stamp = self.version.get(..16).unwrap_or_default();
        let is_stamp = stamp.len() == 16
            && stamp.bytes().enumerate().all(|(at, byte)| match at {
                8 => byte == b'T',
                15 => byte == b'Z',
                _ => byte.is_ascii_digit(),
            });
        let (date, time) = match is_stamp {
            true => stamp.split_at(8),
            false => "19700101T000000Z".split_at(8),
        };
        format!(
            "{}-{}-{}T{}:{}:{}Z",
            &date[..4],
            &date[4..6],
            &date[6..],
            &time[1..3],
            &time[3..5],
            &time[5..7]
        )
    }
}

#[cfg(test)]
mod tests;
