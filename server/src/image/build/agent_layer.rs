//! The agent layer: what is laid over an image at deployment and upgraded alone.
//!
//! It has a manifest, packs and a signature as an image has, and a key of its own. A fixed agent is then neither drift
//! nor a reason to install nodes again.

use std::io::Cursor;
use std::path::Path;

use manifest::{Digest, Entry, EntryKind, FileContent, Header, ManifestKind, PathClass, Unit, Xattrs};

use super::{Build, BuildError, BuiltImage, publish};

/// The layer's name.
const NAME: &str = "plumbline-agent";
const FOLDER: &str = "/usr/lib/plumbline";
const PROGRAM: &str = "/usr/lib/plumbline/plumbline-agent";
const UNIT: &str = "/etc/systemd/system/plumbline-agent.service";
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/plumbline-agent.service";

/// The unit. A node's work goes first: the agent runs when nobody else wants the processor or the disk, and stays
/// within a bound of memory. It is started again however it ended: a node that went silent is what nobody can explain.
const UNIT_TEXT: &str = "\
[Unit]
Description=Plumbline agent
After=network.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/lib/plumbline/plumbline-agent run
Restart=always
RestartSec=5
StateDirectory=plumbline
StateDirectoryMode=0700
Nice=19
CPUSchedulingPolicy=idle
CPUWeight=idle
IOSchedulingClass=idle
MemoryHigh=256M
MemoryMax=512M
TasksMax=64
OOMScoreAdjust=500

[Install]
WantedBy=multi-user.target
";

/// Builds the layer from a binary and stores it.
pub(super) fn build(build: &Build, binary: &Path) -> Result<BuiltImage, BuildError> {
    let program = match std::fs::read(binary) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let path = binary.to_owned();
            return Err(BuildError::InputMissing {
                what: "agent binary",
                path,
            });
        }
        read => read.map_err(BuildError::io(format!("reading {}", binary.display())))?,
    };
    build.reporter.say("agent", format!("{} KB", program.len() / 1000))?;
    let (header, entries) = describe(&program, build.version.as_str(), build.epoch)?;
    publish::with_packs(build, header, entries, |entry| {
        let content = if entry.path.as_bytes() == PROGRAM.as_bytes() {
            program.as_slice()
        } else {
            UNIT_TEXT.as_bytes()
        };
        Ok(Cursor::new(content))
    })
}

fn describe(program: &[u8], version: &str, epoch: i64) -> Result<(Header, Vec<Entry>), BuildError> {
    let mut header = Header::new(ManifestKind::Agent, NAME, version);
    header.units = vec![Unit {
        name: "plumbline-agent.service".to_owned(),
        state: "enabled".to_owned(),
    }];
    let file = |content: &[u8]| {
        EntryKind::File(Some(FileContent {
            size: content.len() as u64,
            digest: Digest::of(content),
        }))
    };
    let entry = |path: &str, mode, kind| -> Result<Entry, BuildError> {
        Ok(Entry {
            path: path.parse()?,
            class: PathClass::Pinned,
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime: epoch,
            xattrs: Xattrs::new(),
        })
    };
    let entries = vec![
        entry(FOLDER, 0o755, EntryKind::Directory)?,
        entry(PROGRAM, 0o755, file(program))?,
        entry(UNIT, 0o644, file(UNIT_TEXT.as_bytes()))?,
        entry(WANTED, 0o777, EntryKind::Symlink(UNIT.as_bytes().to_vec()))?,
    ];
    Ok((header, entries))
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::Keys;
    use super::super::super::store::ImageStore;

    #[tokio::test]
    async fn the_layer_is_stored_signed_by_its_own_key() {
        let data = tempfile::tempdir().unwrap();
        let binary = data.path().join("agent");
        std::fs::write(&binary, "\x7fELF agent").unwrap();
        let built = super::super::build_agent_layer(&binary, data.path(), &())
            .await
            .unwrap();
        let store = ImageStore::open(data.path()).unwrap();
        let manifest = store.manifest(built.digest).await.unwrap();
        let paths: Vec<_> = manifest
            .entries
            .iter()
            .map(|e| format!("{} {:04o}", e.path, e.mode))
            .collect();
        assert_eq!(
            paths,
            [
                "/etc/systemd/system/multi-user.target.wants/plumbline-agent.service 0777",
                "/etc/systemd/system/plumbline-agent.service 0644",
                "/usr/lib/plumbline 0755",
                "/usr/lib/plumbline/plumbline-agent 0755",
            ]
        );
        assert_eq!(manifest.header.units[0].state, "enabled");
        let keys = Keys::load_or_create(&data.path().join("keys")).unwrap();
        let report = store.verify(built.digest, &keys.signers()).await.unwrap();
        assert!(report.is_ok(), "{report:?}");
        assert_eq!(report.signed_by, Some("agent-release"));
    }

    #[tokio::test]
    async fn a_missing_binary_is_named() {
        let data = tempfile::tempdir().unwrap();
        let missing = data.path().join("target/plumbline-agent");
        let error = super::super::build_agent_layer(&missing, data.path(), &())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("agent binary: expected") && error.contains("target/plumbline-agent"),
            "{error}"
        );
    }
}
