//! The recipes of the repository, built for real. Not run by default: needs root, a package mirror, the boot loaders in
//! `.plumbline/loaders` and some minutes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// Prints what a build says, for who watches.
struct Printed;

impl Progress for Printed {
    fn report(&self, stage: &str, detail: &str) {
        println!("{stage}: {detail}");
    }
}

#[tokio::test]
#[ignore = "needs root, a package mirror and minutes"]
async fn the_recipes_of_the_repository_build_and_verify() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let data = tempfile::tempdir().unwrap();
    let agent = data.path().join("agent");
    std::fs::write(&agent, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let request = |name: &str| BuildRequest {
        recipe_dir: repository.join("images").join(name),
        data_dir: data.path().to_owned(),
        loaders_dir: repository.join(".plumbline/loaders"),
        agent_binary: Some(agent.clone()),
    };

    let lab = build(request("debian-12-lab"), &Printed).await.unwrap();
    assert!(lab.pinned_share >= 0.95, "{} of the files are pinned", lab.pinned_share);
    let deployer = build(request("deployer"), &Printed).await.unwrap();
    assert!(deployer.stored_bytes <= 80_000_000);

    let store = ImageStore::open(data.path()).unwrap();
    let keys = Keys::load_or_create(&data.path().join("keys")).unwrap();
    for image in [&lab, &deployer] {
        let report = store.verify(image.digest, &keys.signers()).await.unwrap();
        assert!(report.is_ok(), "{report:?}");
    }
    let manifest = store.manifest(lab.digest).await.unwrap();
    let state = |name: &str| {
        let unit = manifest.header.units.iter().find(|unit| unit.name == name);
        unit.map(|unit| unit.state.as_str())
    };
    assert_eq!(state("ssh.service"), Some("enabled"));
    assert_eq!(state("systemd-networkd.service"), Some("enabled"));
    assert_eq!(state("apt-daily.timer"), Some("masked"));
    let kernel = manifest.header.kernel.clone().unwrap();
    for path in [&kernel.image, &kernel.initramfs] {
        assert!(manifest.get(path).is_some(), "{path} is in the image");
    }
    for part in ["/boot/grub/i386-pc/boot.img", "/boot/grub/i386-pc/core.img"] {
        let entry = manifest.get(&part.parse().unwrap()).expect(part);
        assert_eq!(entry.class, manifest::PathClass::Pinned, "{part}");
    }
    let left = std::fs::read_dir(data.path().join("build")).unwrap().count();
    assert_eq!(left, 1, "only the lock file is left");
}

/// A copy of a recipe of the repository, which may be given a lock.
fn recipe_copied(name: &str, to: &Path) -> std::path::PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images").join(name);
    let copied = std::process::Command::new("cp")
        .arg("--archive")
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.unwrap().success());
    to.join(name)
}

#[tokio::test]
#[ignore = "needs root, a package mirror and minutes"]
async fn the_same_recipe_and_packages_are_the_same_image() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("agent");
    std::fs::write(&agent, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["debian-12-lab", "deployer"] {
        let recipe_dir = recipe_copied(name, folder.path());
        let request = |data: &str| BuildRequest {
            recipe_dir: recipe_dir.clone(),
            data_dir: folder.path().join(data),
            loaders_dir: repository.join(".plumbline/loaders"),
            agent_binary: Some(agent.clone()),
        };
        let update = lock_update(request("first"), &Printed).await.unwrap();
        assert!(update.is_new && update.packages > 20, "{update:?}");
        let first = build(request("first"), &Printed).await.unwrap();
        // Not in the same second, nor below the same path.
        let second = build(request("second-of-another-length"), &Printed).await.unwrap();
        if first.digest != second.digest {
            let mut differences = Vec::new();
            let mut manifests = Vec::new();
            for (data, image) in [("first", &first), ("second-of-another-length", &second)] {
                let store = ImageStore::open(&folder.path().join(data)).unwrap();
                manifests.push(store.manifest(image.digest).await.unwrap());
            }
            for entry in &manifests[0].entries {
                let other = manifests[1].get(&entry.path);
                if other != Some(entry) {
                    differences.push(format!("{entry:?}\n  {other:?}"));
                }
            }
            panic!(
                "{name}: headers {}, {} entries differ:\n{}",
                if manifests[0].header == manifests[1].header {
                    "agree"
                } else {
                    "differ"
                },
                differences.len(),
                differences.join("\n")
            );
        }
        assert_eq!(first.version, second.version);
        let again = lock_update(request("first"), &Printed).await.unwrap();
        assert!(!again.is_new && again.changes.is_empty(), "{again:?}");
    }
}
