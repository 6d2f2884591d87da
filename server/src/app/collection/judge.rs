//! Which image versions stay, and why. Decided from values alone.

use std::collections::HashMap;

use manifest::Digest;
use store::ImageRecord;
use time::{Duration, OffsetDateTime};

/// What is kept beside what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// So many versions of each kind and name, the newest.
    pub versions: usize,
    /// Everything that is younger.
    pub grace: Duration,
}

/// What is decided of an image version.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The image version.
    pub image: ImageRecord,
    /// Why it is kept, each reason a line; none: it goes.
    pub kept: Vec<String>,
}

/// Judges registered image versions, which come as the store lists them: within a kind and name the newest first. `uses`
/// says why some are needed.
#[must_use]
pub fn judge(
    images: Vec<ImageRecord>,
    uses: Vec<(Digest, String)>,
    keeping: Keeping,
    now: OffsetDateTime,
) -> Vec<Judged> {
    let mut uses_of: HashMap<Digest, Vec<String>> = HashMap::new();
    for (image, why) in uses {
        uses_of.entry(image).or_default().push(why);
    }
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let judged = images.into_iter().map(|image| {
        let mut kept = uses_of.remove(&image.digest).unwrap_or_default();
        let place = seen.entry((image.kind.clone(), image.name.clone())).or_default();
        *place += 1;
        // The newest deployer and agent layer are taken without being named: at least one of each stays.
        if *place <= keeping.versions.max(1) {
            kept.push(match keeping.versions {
                0 | 1 => "the newest version".to_owned(),
                versions => format!("one of the {versions} newest versions"),
            });
        }
        if now - image.registered_at < keeping.grace {
            kept.push("younger than the grace time".to_owned());
        }
        Judged { image, kept }
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use store::{ImageUse, ImageUseKind};

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn image(kind: &str, name: &str, number: u8, age_hours: i64) -> ImageRecord {
        ImageRecord {
            digest: Digest::of(format!("{kind}{name}{number}").as_bytes()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            version: number.to_string(),
            description: None,
            architecture: "amd64".to_owned(),
            files: 1,
            content_bytes: 1,
            stored_bytes: 1,
            files_by_class: BTreeMap::new(),
            registered_at: NOW - Duration::hours(age_hours),
            signer: None,
            unusable: None,
        }
    }

    fn kept(judged: &[Judged]) -> Vec<(String, String)> {
        let line = |one: &Judged| (format!("{} {}", one.image.name, one.image.version), one.kept.join(", "));
        judged.iter().map(line).collect()
    }

    #[test]
    fn what_is_needed_new_or_young_stays_and_the_rest_goes() {
        let images = vec![
            image("deployer", "deployer", 1, 9_000),
            image("os", "debian", 5, 3),
            image("os", "debian", 4, 30),
            image("os", "debian", 3, 300),
            image("os", "debian", 2, 3_000),
            image("os", "debian", 1, 9_000),
        ];
        let used = |at: usize, kind, count, example: &str| {
            let image = images[at].digest;
            let example = example.to_owned();
            let used = ImageUse {
                image,
                kind,
                count,
                example,
            };
            (image, used.to_string())
        };
        let uses = vec![
            used(3, ImageUseKind::Node, 412, "gpu-001"),
            used(4, ImageUseKind::ChannelBefore, 1, "debian/stable"),
        ];
        let keeping = Keeping {
            versions: 2,
            grace: Duration::hours(24),
        };
        let expected = [
            ("deployer 1", "one of the 2 newest versions"),
            ("debian 5", "one of the 2 newest versions, younger than the grace time"),
            ("debian 4", "one of the 2 newest versions"),
            ("debian 3", "installed on gpu-001 and 411 more"),
            ("debian 2", "named before by channel debian/stable"),
            ("debian 1", ""),
        ];
        let expected = expected.map(|(image, why)| (image.to_owned(), why.to_owned()));
        assert_eq!(kept(&judge(images, uses, keeping, NOW)), expected);
    }

    #[test]
    fn at_least_the_newest_of_a_name_stays() {
        let images = vec![
            image("agent", "plumbline-agent", 2, 900),
            image("agent", "plumbline-agent", 1, 9_000),
        ];
        let keeping = Keeping {
            versions: 0,
            grace: Duration::ZERO,
        };
        let judged = judge(images, Vec::new(), keeping, NOW);
        assert_eq!(judged[0].kept, ["the newest version"]);
        assert!(judged[1].kept.is_empty());
    }
}
