//! What needs mounts of its own: a filesystem that fills up, and one mounted inside a root.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use imports::{Import, ImportError, Limits, NoteKind, Source};

use super::support::{Images, Tar, file, is_root, paths, unpack};

const INSIDE: &str = "PLUMBLINE_TEST_IN_NAMESPACE";

fn mount(arguments: &[&str], target: &Path) {
    let status = Command::new("mount").args(arguments).arg(target).status().unwrap();
    assert!(status.success());
}

/// Whether this process may mount: it is root, in a mount namespace of its own. If not, the test of this name runs once
/// more in one, as far as there is root.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if is_root() {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("space::{test}"), "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}

#[test]
fn a_full_disk_is_named_and_nothing_stays() {
    if !is_inside("a_full_disk_is_named_and_nothing_stays") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let disk = base.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=1M", "small"], &disk);
    let large = "x".repeat(3 << 20);
    let tar = Tar::new().folder("a/").file("a/large", &large).finish();
    let tarball = file("root.tar", &tar);
    let layout = Images::of(std::slice::from_ref(&tar)).layout();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large"), &large).unwrap();
    let sources = [
        Source::Tarball {
            path: tarball.path.clone(),
        },
        layout.source(),
        Source::Folder {
            path: folder.path().to_owned(),
        },
    ];
    for source in sources {
        let import = Import::open(source.clone(), &Limits::default()).unwrap();
        let error = import
            .unpack_into(&disk.join("root"), &mut |_| ControlFlow::Continue(()))
            .unwrap_err();
        assert!(
            matches!(&error, ImportError::DiskFull { path } if path.ends_with("large")),
            "{source:?}: {error}"
        );
        assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 0, "{source:?}");
    }
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
}

#[test]
fn what_is_mounted_in_a_folder_is_not_copied() {
    if !is_inside("what_is_mounted_in_a_folder_is_not_copied") {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let proc = source.path().join("proc");
    std::fs::create_dir(&proc).unwrap();
    mount(&["-t", "tmpfs", "other"], &proc);
    std::fs::write(proc.join("inside"), "1").unwrap();
    let root = unpack(Source::Folder {
        path: source.path().to_owned(),
    })
    .unwrap();
    assert_eq!(paths(&root.root), ["proc"]);
    assert_eq!(root.imported.notes[0].kind, NoteKind::OtherFilesystem);
    assert!(Command::new("umount").arg(&proc).status().unwrap().success());
}
