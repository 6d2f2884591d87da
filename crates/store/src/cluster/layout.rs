//! The folders of the cluster, and the socket's short path.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ClusterError;
use super::account::{Account, OnParentDeath};

/// The name of PostgreSQL's socket for its default port.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// unix(7): `sun_path` has 108 bytes, the last one a NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where everything of one cluster is; all paths absolute.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// `<data_dir>/postgres`.
    pub root: PathBuf,
    /// PostgreSQL's data folder.
    pub data: PathBuf,
    /// Where a data folder is made before it gets its name.
    pub partial: PathBuf,
    /// The folder of the socket.
    pub run: PathBuf,
    /// The folder of the logs.
    pub log: PathBuf,
    /// The file whose lock says that a server uses the cluster.
    pub lock: PathBuf,
}

impl Layout {
    /// Makes the folders that are missing and checks that the account can use them.
    pub fn make(data_dir: &Path, account: &Account) -> Result<Self, ClusterError> {
        fs::create_dir_all(data_dir).map_err(ClusterError::file("make", data_dir))?;
        let data_dir = data_dir
            .canonicalize()
            .map_err(ClusterError::file("resolve", data_dir))?;
        let root = data_dir.join("postgres");
        let run = socket_folder(&root, &short_folder_parent());
        let layout = Self {
            data: root.join("data"),
            partial: root.join("data.partial"),
            log: root.join("log"),
            lock: root.join("lock"),
            run,
            root,
        };
        // Only `data` and `run` are PostgreSQL's to write: whoever gets at its account must find no place where a link
        // would lead our own writes, which may be root's, elsewhere.
        let ours = Account::ourselves();
        make_folder(&layout.root, &ours)?;
        make_folder(&layout.log, &ours)?;
        make_folder(&layout.run, account)?;
        if account.switches {
            // Enter, not list.
            fs::set_permissions(&layout.root, fs::Permissions::from_mode(0o711))
                .map_err(ClusterError::file("open", &layout.root))?;
        }
        if account.switches {
            check_enterable(&layout.root, account)?;
        }
        Ok(layout)
    }
}

/// `<root>/run`, or `<short_parent>/plumbline-<hash of root>` when that would not fit into a socket's address or would
/// need quoting in PostgreSQL's settings.
fn socket_folder(root: &Path, short_parent: &Path) -> PathBuf {
    let usual = root.join("run");
    let bytes = usual.as_os_str().as_bytes();
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(byte));
    if is_plain && bytes.len() + 1 + SOCKET_NAME.len() <= SOCKET_PATH_BYTES_MAX {
        return usual;
    }
    let digest = Sha256::digest(root.as_os_str().as_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    short_parent.join(format!("plumbline-{name}"))
}

/// `/run` for root; for others the folder their session gives them, else `/tmp`.
fn short_folder_parent() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_dir() && folder.as_os_str().len() <= 48)
        .unwrap_or_else(|| "/tmp".into())
}

/// Makes a folder of mode 0700 for `owner`; one that exists must be a real folder of that owner, since anybody can make
/// one in `/tmp`.
pub(super) fn make_folder(folder: &Path, owner: &Account) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) if owner.switches => give_away(folder, owner),
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_owner(folder, owner),
        Err(source) => Err(ClusterError::file("make", folder)(source)),
    }
}

/// The folder must be a folder (no link) of `owner`; one of root's, left by a crash before it was given away, is given
/// away now.
pub(super) fn check_owner(folder: &Path, owner: &Account) -> Result<(), ClusterError> {
    let metadata = fs::symlink_metadata(folder).map_err(ClusterError::file("look at", folder))?;
    if !metadata.is_dir() {
        return Err(ClusterError::file("use", folder)(io::ErrorKind::NotADirectory.into()));
    }
    if metadata.uid() == owner.uid {
        return Ok(());
    }
    if owner.switches && metadata.uid() == 0 {
        return give_away(folder, owner);
    }
    Err(ClusterError::WrongOwner {
        path: folder.to_owned(),
        owner: metadata.uid(),
        account: owner.name.clone(),
        uid: owner.uid,
    })
}

fn give_away(folder: &Path, owner: &Account) -> Result<(), ClusterError> {
    std::os::unix::fs::lchown(folder, Some(owner.uid), Some(owner.gid)).map_err(ClusterError::file("give away", folder))
}

/// Asks as the account itself, since modes, access lists and mount options all have a say.
fn check_enterable(folder: &Path, account: &Account) -> Result<(), ClusterError> {
    let is_open = |folder: &Path| {
        let mut command = account.command(Path::new("test"), OnParentDeath::Terminate);
        let output = command.arg("-x").arg(folder).output();
        output
            .map(|output| output.status.success())
            .map_err(|source| ClusterError::Spawn {
                program: "setpriv".to_owned(),
                source,
            })
    };
    if is_open(folder)? {
        return Ok(());
    }
    let mut ancestors: Vec<&Path> = folder.ancestors().collect();
    ancestors.reverse();
    for ancestor in ancestors {
        if !is_open(ancestor)? {
            return Err(ClusterError::FolderClosed {
                folder: ancestor.to_owned(),
                account: account.name.clone(),
            });
        }
    }
    Err(ClusterError::FolderClosed {
        folder: folder.to_owned(),
        account: account.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_stays_in_the_data_folder_when_it_fits() {
        let folder = socket_folder(Path::new("/var/lib/plumbline/postgres"), Path::new("/run"));
        assert_eq!(folder, Path::new("/var/lib/plumbline/postgres/run"));
    }

    #[test]
    fn the_limit_is_the_kernels() {
        // "/" + name + "/run" + "/" + socket must be 107 bytes at most.
        let fits = 107 - SOCKET_NAME.len() - 1 - "/run".len() - 1;
        for (name_bytes, is_usual) in [(fits, true), (fits + 1, false)] {
            let root = PathBuf::from(format!("/{}", "x".repeat(name_bytes)));
            let folder = socket_folder(&root, Path::new("/run"));
            assert_eq!(
                folder == root.join("run"),
                is_usual,
                "{name_bytes} bytes: {}",
                folder.display()
            );
        }
    }

    #[test]
    fn two_folders_that_do_not_fit_get_two_sockets() {
        let parent = Path::new("/run");
        let folders = ["it's here", "a,b"].map(|name| socket_folder(&Path::new("/srv").join(name), parent));
        assert!(folders.iter().all(|folder| folder.starts_with(parent)), "{folders:?}");
        assert_ne!(folders[0], folders[1]);
    }
}
