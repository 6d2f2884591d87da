//! The boot loaders, and what machines mean by the names they ask for.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use netboot::dhcp::boot::GRUB_PATH;
use netboot::script::grub_start;
use netboot::tftp::{FileMap, FileName, TftpFile};

use super::after_shim::AfterShim;

/// Largest loader that is read into memory.
const LOADER_BYTES_MAX: u64 = 64 << 20;
/// GRUB for booting from the network, as the folder has it, and the name that shim asks for.
const GRUB_FILE: &str = "grubnetx64.efi";
const GRUB_ASKED_FOR: &str = "grubx64.efi";
/// What GRUB asks for first, where it was loaded from.
pub const GRUB_START: &str = "grub/grub.cfg";

/// All loaders, in memory: a few megabytes, served to a whole rack at once.
#[derive(Debug, Default)]
pub struct Loaders {
    files: FileMap,
    /// Held for a look or a note, never across an await.
    after_shim: Mutex<AfterShim>,
}

impl Loaders {
    /// Reads the folder of boot loaders. Beside them stands the name that shim asks for by itself: GRUB.
    ///
    /// # Errors
    /// The folder or a file that cannot be read, with its name.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        let mut files = FileMap::new();
        let hint = "`cargo xtask setup` fetches the loaders; boot.loaders_dir names their folder";
        let entries = std::fs::read_dir(dir).with_context(|| format!("boot loaders {}: {hint}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("boot loaders {}", dir.display()))?;
            let metadata = entry
                .metadata()
                .with_context(|| format!("{}", entry.path().display()))?;
            let name = entry.file_name();
            if !metadata.is_file() || metadata.len() > LOADER_BYTES_MAX || name.as_encoded_bytes().ends_with(b".json") {
                continue;
            }
            let name = FileName::parse(name.as_encoded_bytes())?;
            let content = std::fs::read(entry.path()).with_context(|| format!("{}", entry.path().display()))?;
            files.insert(name, TftpFile::from(content));
        }
        anyhow::ensure!(
            !files.is_empty(),
            "boot loaders {}: the folder is empty: {hint}",
            dir.display()
        );
        if let Some(grub) = files.get(&FileName::parse(GRUB_FILE.as_bytes())?) {
            files.insert(FileName::parse(GRUB_ASKED_FOR.as_bytes())?, grub);
        }
        Ok(Self {
            files,
            after_shim: Mutex::default(),
        })
    }

    /// The file of this name, without regard to case; failing that, the loader of its last component: firmware and shim
    /// ask for loaders under folders that nobody has. GRUB's first script leads on to `http_base`, the boot listener as
    /// the machine that asks reaches it.
    #[must_use]
    pub fn find(&self, name: &FileName, http_base: &str) -> Option<TftpFile> {
        if name.as_str().eq_ignore_ascii_case(GRUB_START) {
            return Some(TftpFile::from(grub_start(http_base, GRUB_PATH)));
        }
        let base = || FileName::parse(name.basename().as_bytes()).ok();
        self.files.get(name).or_else(|| self.files.get(&base()?))
    }

    /// What a machine means by a name that [`Loaders::find`] does not find, and that may be none: the loader after shim,
    /// if shim was the last that it read.
    #[must_use]
    pub fn find_next(&self, name: Option<&FileName>, machine: IpAddr) -> Option<(FileName, TftpFile)> {
        let after_shim = self.after_shim.lock().unwrap_or_else(PoisonError::into_inner);
        if !after_shim.is_next_meant(machine, name, Instant::now()) {
            return None;
        }
        let meant = FileName::parse(GRUB_ASKED_FOR.as_bytes()).ok()?;
        let content = self.files.get(&meant)?;
        Some((meant, content))
    }

    /// A machine has read a loader to its end.
    pub fn note_read(&self, name: &FileName, machine: IpAddr) {
        let mut after_shim = self.after_shim.lock().unwrap_or_else(PoisonError::into_inner);
        after_shim.read(machine, name, Instant::now());
    }
}
