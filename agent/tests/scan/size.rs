//! A scan stays small: the baseline is packed, nothing of the node is kept.

use std::process::Command;
use std::sync::Arc;

use manifest::{Digest, Entry, EntryKind, FileContent, Header, Manifest, ManifestKind, PathClass, TreePath, Xattrs};
use plumbline_agent::baseline::ManifestStore;
use plumbline_agent::node::NodeParts;
use plumbline_agent::service::{Look, told};
use plumbline_agent::state::StateFolder;
use protocol::NodeId;
use protocol::latest::Baseline;

const FOLDER: &str = "PLUMBLINE_TEST_FOLDER";
const ENTRIES: usize = 10_000;
const RSS_BYTES_MAX: u64 = 40 << 20;

/// A tree of `ENTRIES` paths with its manifests kept as the agent keeps them.
fn build(folder: &std::path::Path) -> Baseline {
    let entry = |path: TreePath, kind, mode| Entry {
        path,
        class: PathClass::Pinned,
        kind,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime: 0,
        xattrs: Xattrs::new(),
    };
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut entries = vec![entry(TreePath::root(), EntryKind::Directory, 0o755)];
    for at in 0..100 {
        let name = format!("usr-share-with-a-name-of-some-length-{at:03}");
        std::fs::create_dir(tree.join(&name)).unwrap();
        entries.push(entry(format!("/{name}").parse().unwrap(), EntryKind::Directory, 0o755));
        for file in 0..ENTRIES / 100 - 1 {
            let (path, content) = (format!("{name}/a-file-of-a-package-{file:03}"), format!("{at} {file}"));
            std::fs::write(tree.join(&path), &content).unwrap();
            let content = FileContent {
                size: content.len() as u64,
                digest: Digest::of(content.as_bytes()),
            };
            entries.push(entry(
                format!("/{path}").parse().unwrap(),
                EntryKind::File(Some(content)),
                0o644,
            ));
        }
    }
    let state = StateFolder::open(&folder.join("state")).unwrap();
    let store = ManifestStore::new(&state.manifests());
    let [image, layer, overlay] = [
        (ManifestKind::Os, entries),
        (ManifestKind::Agent, vec![]),
        (ManifestKind::Overlay, vec![]),
    ]
    .map(|(kind, entries)| {
        let manifest = Manifest::new(Header::new(kind, "x", "1"), entries).unwrap();
        store
            .put(&manifest.digest().unwrap(), &manifest.encode().unwrap())
            .unwrap();
        manifest.digest().unwrap()
    });
    let baseline = Baseline::new(NodeId::new(), image, layer, overlay);
    state.keep_baseline(&baseline);
    baseline
}

#[test]
fn a_scan_of_ten_thousand_paths_stays_within_its_memory() {
    // In a process of its own: the highest memory is that of the whole process.
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else {
        let folder = tempfile::tempdir().unwrap();
        build(folder.path());
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "scan::size::a_scan_of_ten_thousand_paths_stays_within_its_memory",
                "--nocapture",
            ])
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("highest memory"), "{text}");
        println!("{text}");
        return;
    };
    let state = StateFolder::open(&folder.join("state")).unwrap();
    let baseline = state.baseline().unwrap();
    let expected = Arc::new(ManifestStore::new(&state.manifests()).load(&baseline).unwrap());
    for _ in 0..2 {
        let look = Look {
            parts: NodeParts::of_folder(&folder.join("tree")),
            state: state.clone(),
            baseline: baseline.digest,
            expected: expected.clone(),
            stop: Arc::default(),
        };
        let found = told(look.scan(None), None, None);
        assert_eq!(found.scan.difference_count, 0, "{:?}", found.differences.first());
        assert_eq!(found.scan.entries(), ENTRIES as u64 + 1);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let bytes = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
    println!("highest memory: {} KiB", bytes / 1024);
    assert!(bytes < RSS_BYTES_MAX, "{bytes}");
}
