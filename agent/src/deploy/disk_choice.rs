//! Which disk. Kernel names change from boot to boot, so a disk is chosen by what it is, and a doubt is an error.

use protocol::latest::{Disk, DiskRule};

/// No disk was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None fits.
    #[error("no disk fits the rule ({rule}); there is: {disks}")]
    NoneFits {
        /// The rule's conditions.
        rule: String,
        /// All disks that were there.
        disks: String,
    },
    /// More than one fits.
    #[error("{count} disks fit the rule ({rule}), and exactly one must: {disks}")]
    SeveralFit {
        /// How many.
        count: usize,
        /// The rule's conditions.
        rule: String,
        /// Those that fit.
        disks: String,
    },
    /// The one that fits cannot hold the image.
    #[error("the disk is too small: {needed_bytes} bytes are needed; {disk}")]
    TooSmall {
        /// Least size in bytes.
        needed_bytes: u64,
        /// The disk.
        disk: String,
    },
}

/// The one disk that fulfils all conditions of the rule and holds `needed_bytes`.
///
/// Removable devices (USB sticks, a BMC's virtual media) count only when the rule names a serial number or WWN.
///
/// # Errors
/// [`Refusal`] when none or several fit, or the one is too small; it lists what was there.
pub fn choose<'a>(disks: &'a [Disk], rule: &DiskRule, needed_bytes: u64) -> Result<&'a Disk, Refusal> {
    let fitting: Vec<&Disk> = disks.iter().filter(|disk| fits(disk, rule)).collect();
    match fitting.as_slice() {
        [] => Err(Refusal::NoneFits {
            rule: conditions(rule),
            disks: list(disks.iter()),
        }),
        [disk] if disk.size_bytes < needed_bytes => Err(Refusal::TooSmall {
            needed_bytes,
            disk: describe(disk),
        }),
        [disk] => Ok(disk),
        several => Err(Refusal::SeveralFit {
            count: several.len(),
            rule: conditions(rule),
            disks: list(several.iter().copied()),
        }),
    }
}

fn fits(disk: &Disk, rule: &DiskRule) -> bool {
    let equal = |wanted: &Option<String>, found: &Option<String>| {
        wanted
            .as_ref()
            .is_none_or(|wanted| found.as_ref().is_some_and(|found| found.trim() == wanted.trim()))
    };
    let named = rule.serial.is_some() || rule.wwn.is_some();
    let model = |part: &String| disk.model.as_ref().is_some_and(|model| model.contains(part.as_str()));
    (named || !disk.removable)
        && equal(&rule.serial, &disk.serial)
        && equal(&rule.wwn, &disk.wwn)
        && rule.model.as_ref().is_none_or(model)
        && rule.size_min_bytes.is_none_or(|least| disk.size_bytes >= least)
        && rule.size_max_bytes.is_none_or(|most| disk.size_bytes <= most)
}

/// A disk for people: name, size, model, serial number, WWN.
pub fn describe(disk: &Disk) -> String {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    format!(
        "{} ({} bytes, model {}, serial {}, wwn {}{})",
        disk.name,
        disk.size_bytes,
        or_none(&disk.model),
        or_none(&disk.serial),
        or_none(&disk.wwn),
        if disk.removable { ", removable" } else { "" }
    )
}

fn list<'a>(disks: impl Iterator<Item = &'a Disk>) -> String {
    let lines: Vec<String> = disks.map(describe).collect();
    if lines.is_empty() {
        "no disk at all".to_owned()
    } else {
        lines.join("; ")
    }
}

fn conditions(rule: &DiskRule) -> String {
    let text = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
    let size = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value} bytes"));
    let parts: Vec<String> = [
        text("serial", &rule.serial),
        text("wwn", &rule.wwn),
        text("model with", &rule.model),
        size("at least", rule.size_min_bytes),
        size("at most", rule.size_max_bytes),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        "the only disk".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn disk(name: &str, size_gb: u64, serial: &str) -> Disk {
        Disk {
            name: name.to_owned(),
            size_bytes: size_gb * GB,
            sector_bytes: 512,
            model: Some(format!("MODEL-{size_gb}")),
            serial: Some(serial.to_owned()),
            wwn: Some(format!("eui.{serial}")),
            ..Disk::default()
        }
    }

    fn node() -> Vec<Disk> {
        let mut stick = disk("sda", 32, "USB1");
        stick.removable = true;
        vec![
            disk("nvme0n1", 960, "S1"),
            disk("nvme1n1", 3840, "S2"),
            disk("nvme2n1", 3840, "S3"),
            stick,
        ]
    }

    /// metal-hammer#61 and its family, e: a disk is chosen by what it is, and a doubt is a refusal.
    #[test]
    fn metal_hammer_61_all_conditions_must_hold_and_one_disk_must_fulfil_them() {
        let rule = |change: fn(&mut DiskRule)| {
            let mut rule = DiskRule::default();
            change(&mut rule);
            rule
        };
        let cases = [
            (rule(|r| r.serial = Some("S2".into())), Ok("nvme1n1")),
            (rule(|r| r.wwn = Some("eui.S3".into())), Ok("nvme2n1")),
            (rule(|r| r.size_max_bytes = Some(1000 * GB)), Ok("nvme0n1")),
            (rule(|r| r.model = Some("960".into())), Ok("nvme0n1")),
            (rule(|r| r.serial = Some("USB1".into())), Ok("sda")),
            (rule(|r| r.model = Some("MODEL-32".into())), Err("no disk fits")),
            (rule(|r| r.size_min_bytes = Some(1000 * GB)), Err("2 disks fit")),
            (rule(|_| ()), Err("3 disks fit")),
            (rule(|r| r.serial = Some("S".into())), Err("no disk fits")),
            (
                rule(|r| (r.serial, r.size_max_bytes) = (Some("S2".into()), Some(GB))),
                Err("no disk fits"),
            ),
        ];
        for (rule, expected) in cases {
            let disks = node();
            match (choose(&disks, &rule, 10 * GB), expected) {
                (Ok(disk), Ok(name)) => assert_eq!(disk.name, name, "{rule:?}"),
                (Err(refusal), Err(text)) => assert!(refusal.to_string().contains(text), "{rule:?}: {refusal}"),
                (got, _) => panic!("{rule:?}: {got:?}"),
            }
        }
    }

    /// The same family, e.
    #[test]
    fn metal_hammer_61_a_refusal_lists_what_was_there() {
        let disks = node();
        let text = choose(&disks, &DiskRule::default(), 0).unwrap_err().to_string();
        for part in ["nvme0n1", "serial S1", "960000000000 bytes", "serial S3"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("USB1"), "a stick is no candidate: {text}");
        assert!(
            choose(&[], &DiskRule::default(), 0)
                .unwrap_err()
                .to_string()
                .contains("no disk at all")
        );
    }

    /// The same family, e: after a restart the kernel calls the same disks by other names, in another order.
    #[test]
    fn metal_hammer_61_names_that_change_choose_the_same_disk() {
        let before = node();
        let mut after = node();
        after.swap(0, 2);
        for (index, disk) in after.iter_mut().enumerate() {
            disk.name = format!("nvme{index}n1");
        }
        for rule in [
            DiskRule {
                serial: Some("S1".into()),
                ..DiskRule::default()
            },
            DiskRule {
                wwn: Some("eui.S3".into()),
                ..DiskRule::default()
            },
            DiskRule {
                size_max_bytes: Some(1000 * GB),
                ..DiskRule::default()
            },
        ] {
            let serial = |disks: &[Disk]| choose(disks, &rule, GB).unwrap().serial.clone();
            assert_eq!(serial(&before), serial(&after), "{rule:?}");
        }
        let gone: Vec<Disk> = after
            .into_iter()
            .filter(|disk| disk.serial.as_deref() != Some("S1"))
            .collect();
        let rule = DiskRule {
            serial: Some("S1".into()),
            ..DiskRule::default()
        };
        assert!(
            choose(&gone, &rule, GB).is_err(),
            "and no other disk in its place, nvme0n1 least of all"
        );
    }

    #[test]
    fn a_disk_that_cannot_hold_the_image_is_refused_before_it_is_wiped() {
        let disks = [disk("vda", 4, "LAB0001")];
        assert_eq!(choose(&disks, &DiskRule::default(), 4 * GB).unwrap().name, "vda");
        let text = choose(&disks, &DiskRule::default(), 4 * GB + 1)
            .unwrap_err()
            .to_string();
        assert!(text.contains("too small") && text.contains("4000000001"), "{text}");
    }
}
