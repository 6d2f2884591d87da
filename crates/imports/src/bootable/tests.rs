use std::os::unix::fs::symlink;

use super::*;

/// A root in which everything is as it should be.
struct Sample(tempfile::TempDir);

const VERSION: &str = "6.1.0-28-amd64";

impl Sample {
    fn new(os_release: &str) -> Self {
        let sample = Self(tempfile::tempdir().unwrap());
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(18, 0);
        elf.extend([62, 0, 1, 0, 0, 0]);
        sample.write("usr/lib/os-release", os_release.as_bytes());
        sample.write("usr/lib/systemd/systemd", &elf);
        sample.write("usr/lib/systemd/systemd-networkd", &elf);
        sample.write("usr/sbin/sshd", &elf);
        sample.write(&format!("boot/vmlinuz-{VERSION}"), b"kernel");
        sample.write(&format!("boot/initrd.img-{VERSION}"), b"initramfs");
        sample.write(&format!("usr/lib/modules/{VERSION}/modules.dep"), b"");
        sample.write("etc/machine-id", b"");
        sample.write("etc/shadow", b"root:*:19000:0:99999:7:::\ndaemon:!:::::::\n");
        // As distributions have them: merged folders, and an absolute link.
        symlink("usr/lib", sample.path("lib")).unwrap();
        symlink("usr/sbin", sample.path("sbin")).unwrap();
        symlink("/lib/systemd/systemd", sample.path("usr/sbin/init")).unwrap();
        symlink("../usr/lib/os-release", sample.path("etc/os-release")).unwrap();
        sample
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    fn look(&self) -> Result<Bootable, Vec<Missing>> {
        bootable(self.0.path())
    }
}

const DEBIAN: &str = "ID=debian\nVERSION_ID=\"12\"\n";
const ROCKY: &str = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n";

#[test]
fn a_complete_root_says_what_it_boots_with() {
    let found = Sample::new(DEBIAN).look().unwrap();
    assert_eq!(found.kernel, format!("/boot/vmlinuz-{VERSION}"));
    assert_eq!(found.kernel_version, VERSION);
    assert_eq!(
        found.initramfs,
        Initramfs::Present(format!("/boot/initrd.img-{VERSION}"))
    );
    assert_eq!(found.init, "/usr/lib/systemd/systemd");
    assert_eq!(found.os.id, "debian");
    assert_eq!(found.warnings, []);
}

#[test]
fn an_rpm_root_boots_with_the_kernel_beside_its_modules_and_dracut() {
    let sample = Sample::new(ROCKY);
    sample.remove(&format!("boot/vmlinuz-{VERSION}"));
    sample.remove(&format!("boot/initrd.img-{VERSION}"));
    sample.write(&format!("usr/lib/modules/{VERSION}/vmlinuz"), b"kernel");
    sample.write("usr/bin/dracut", b"#!/bin/bash");
    let found = sample.look().unwrap();
    assert_eq!(found.kernel, format!("/usr/lib/modules/{VERSION}/vmlinuz"));
    assert_eq!(found.initramfs, Initramfs::MadeBy("/usr/bin/dracut".to_owned()));
}

/// An image of a container: all of it at once, each with the packages of its distribution.
#[test]
fn a_container_lists_everything_that_is_missing() {
    for (os, kernel, initramfs, init) in [
        (
            DEBIAN,
            "apt-get install linux-image-amd64",
            None::<&str>,
            "apt-get install systemd-sysv udev",
        ),
        (ROCKY, "dnf install kernel", None, "dnf install systemd systemd-udev"),
    ] {
        let sample = Sample::new(os);
        for path in ["boot", "usr/lib/modules", "usr/lib/systemd", "usr/sbin"] {
            sample.remove(path);
        }
        let missing = sample.look().unwrap_err();
        let remedy = |kind| {
            let found = missing.iter().find(|missing| missing.kind == kind);
            found.map(|missing| missing.remedy.as_str())
        };
        assert_eq!(remedy(MissingKind::Kernel), Some(kernel));
        assert_eq!(remedy(MissingKind::Initramfs), initramfs);
        assert_eq!(remedy(MissingKind::Init), Some(init));
    }
}

#[test]
fn each_thing_that_keeps_a_node_from_booting_is_named() {
    type Change = fn(&Sample);
    let cases: [(MissingKind, &str, Change); 10] = [
        (MissingKind::OsRelease, "/etc/os-release", |s| {
            s.remove("usr/lib/os-release")
        }),
        (MissingKind::Kernel, "no kernel", |s| s.remove("boot")),
        (
            MissingKind::SeveralKernels,
            "2 kernels (6.1.0-28-amd64, 6.1.0-29-amd64)",
            |s| {
                s.write("boot/vmlinuz-6.1.0-29-amd64", b"");
            },
        ),
        (MissingKind::Modules, "/lib/modules/6.1.0-28-amd64 is not there", |s| {
            s.remove("usr/lib/modules")
        }),
        (MissingKind::Modules, "modules.dep is not there", |s| {
            s.remove(&format!("usr/lib/modules/{VERSION}/modules.dep"));
        }),
        (MissingKind::Initramfs, "neither initramfs-tools nor dracut", |s| {
            s.remove(&format!("boot/initrd.img-{VERSION}"));
        }),
        (MissingKind::Init, "/sbin/init is not there", |s| {
            s.remove("usr/sbin/init")
        }),
        (MissingKind::Init, "/sbin/init is /usr/bin/busybox", |s| {
            s.remove("usr/sbin/init");
            s.write("usr/bin/busybox", b"");
            symlink("../bin/busybox", s.path("usr/sbin/init")).unwrap();
        }),
        (MissingKind::Architecture, "no program for x86-64", |s| {
            s.write(
                "usr/lib/systemd/systemd",
                b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0",
            );
        }),
        (MissingKind::Unreadable, "/sbin/init could not be looked at", |s| {
            s.remove("usr/sbin/init");
            symlink("init", s.path("usr/sbin/init")).unwrap();
        }),
    ];
    for (kind, problem, change) in cases {
        let sample = Sample::new(DEBIAN);
        change(&sample);
        let missing = sample.look().unwrap_err();
        assert!(
            missing
                .iter()
                .any(|missing| missing.kind == kind && missing.problem.contains(problem)),
            "{kind:?}: {missing:?}"
        );
    }
}

#[test]
fn what_belongs_to_one_machine_is_refused() {
    let key = b"-----BEGIN OPENSSH PRIVATE KEY-----\n".as_slice();
    let cases: [(&str, &[u8], MissingKind); 13] = [
        (
            "etc/machine-id",
            b"0123456789abcdef0123456789abcdef\n",
            MissingKind::Identity,
        ),
        (
            "var/lib/dbus/machine-id",
            b"0123456789abcdef0123456789abcdef\n",
            MissingKind::Identity,
        ),
        ("etc/ssh/ssh_host_ed25519_key", key, MissingKind::Identity),
        ("etc/ssh/ssh_host_rsa_key.pub", b"ssh-rsa AAAA", MissingKind::Identity),
        ("root/.ssh/id_rsa", key, MissingKind::Identity),
        ("home/someone/.ssh/work", key, MissingKind::Identity),
        (
            "root/.ssh/authorized_keys",
            b"# me\nssh-ed25519 AAAA me\n",
            MissingKind::Identity,
        ),
        ("var/lib/cloud/instances/i-1/user-data.txt", b"", MissingKind::Identity),
        ("etc/munge/munge.key", b"x", MissingKind::Identity),
        ("etc/shadow", b"root:$6$a$b:1::::::\n", MissingKind::Identity),
        ("etc/shadow", b"root:!$6$a$b:1::::::\n", MissingKind::Identity),
        ("etc/shadow", b"root::1::::::\n", MissingKind::EmptyPassword),
        (
            "boot/vmlinuz-0-rescue-0123456789abcdef0123456789abcdef",
            b"",
            MissingKind::Identity,
        ),
    ];
    for (path, content, kind) in cases {
        let sample = Sample::new(DEBIAN);
        sample.write(path, content);
        let missing = sample.look().unwrap_err();
        assert_eq!(missing.len(), 1, "{path}: {missing:?}");
        assert_eq!(missing[0].kind, kind, "{path}");
    }
    let sample = Sample::new(DEBIAN);
    sample.write("root/.ssh/authorized_keys", b"# rendered for each node\n");
    sample.write("etc/machine-id", b"uninitialized\n");
    assert!(sample.look().is_ok(), "these say nothing of anybody");
}

#[test]
fn no_ssh_and_no_network_are_warnings() {
    let sample = Sample::new(ROCKY);
    sample.remove("usr/sbin/sshd");
    sample.remove("usr/lib/systemd/systemd-networkd");
    let warnings = sample.look().unwrap().warnings;
    let remedies: Vec<&str> = warnings.iter().map(|warning| warning.remedy.as_str()).collect();
    assert_eq!(remedies, ["dnf install openssh-server", "dnf install NetworkManager"]);
}

/// What stands outside the root is not the root's, however a link gets there.
#[test]
fn links_do_not_lead_out() {
    let sample = Sample::new(DEBIAN);
    sample.remove("usr/lib/os-release");
    sample.remove("etc/os-release");
    symlink("../../../../../../etc/os-release", sample.path("etc/os-release")).unwrap();
    let missing = sample.look().unwrap_err();
    // The link leads to itself inside the root.
    assert!(
        missing.iter().any(|missing| missing.kind == MissingKind::OsRelease),
        "{missing:?}"
    );
}
