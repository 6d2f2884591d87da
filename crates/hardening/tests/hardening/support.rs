//! Roots made of a few files, seen as if they belonged to root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hardening::{Metadata, Place, Profile, Tree, Unlooked, profiles_read};
use manifest::TreePath;
use serde::Deserialize;

/// One path of a root.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum FileSpec {
    Text(String),
    Full(Full),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Full {
    #[serde(default)]
    content: String,
    mode: Option<String>,
    #[serde(default)]
    owner: u32,
    #[serde(default)]
    group: u32,
    link: Option<String>,
    #[serde(default)]
    folder: bool,
}

/// A root.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootSpec {
    #[serde(default)]
    running: bool,
    command_line: Option<String>,
    files: BTreeMap<String, FileSpec>,
}

impl RootSpec {
    /// Makes it below a temporary folder.
    pub fn make(&self) -> Root {
        let folder = tempfile::tempdir().unwrap();
        let mut owners = BTreeMap::new();
        for (path, spec) in &self.files {
            let place = folder.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            let full = match spec {
                FileSpec::Text(content) => &Full {
                    content: content.clone(),
                    ..Full::default()
                },
                FileSpec::Full(full) => full,
            };
            owners.insert(path.parse().unwrap(), (full.owner, full.group));
            match &full.link {
                Some(link) => symlink(link, &place).unwrap(),
                None if full.folder => fs::create_dir(&place).unwrap(),
                None => fs::write(&place, &full.content).unwrap(),
            }
            let mode = full.mode.as_ref().map(|mode| u32::from_str_radix(mode, 8).unwrap());
            if full.link.is_none() {
                let mode = mode.unwrap_or(if full.folder { 0o755 } else { 0o644 });
                fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let tree = if self.running {
            Tree::running_at(folder.path())
        } else {
            Tree::folder(folder.path())
        }
        .unwrap();
        let tree = match &self.command_line {
            Some(line) => tree.with_command_line(line),
            None => tree,
        };
        Root { folder, tree, owners }
    }
}

/// A root on disk; owners are as the specification says, whoever runs the test.
pub struct Root {
    pub folder: tempfile::TempDir,
    tree: Tree,
    owners: BTreeMap<TreePath, (u32, u32)>,
}

impl Root {
    fn owned(&self, path: &TreePath, metadata: Metadata) -> Metadata {
        let (uid, gid) = self.owners.get(path).copied().unwrap_or((0, 0));
        Metadata { uid, gid, ..metadata }
    }
}

impl Place for Root {
    fn read(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        self.tree.read(path)
    }

    fn list(&self, path: &TreePath) -> Result<Option<Vec<Vec<u8>>>, Unlooked> {
        self.tree.list(path)
    }

    fn metadata(&self, path: &TreePath) -> Result<Option<Metadata>, Unlooked> {
        Ok(self.tree.metadata(path)?.map(|metadata| self.owned(path, metadata)))
    }

    fn read_link(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        self.tree.read_link(path)
    }

    fn walk(&self, visit: &mut dyn FnMut(&TreePath, &Metadata)) -> Result<(), Unlooked> {
        self.tree
            .walk(&mut |path, metadata| visit(path, &self.owned(path, *metadata)))
    }

    fn is_running(&self) -> bool {
        self.tree.is_running()
    }

    fn command_line(&self) -> Result<String, Unlooked> {
        self.tree.command_line()
    }
}

/// The folder of the profiles.
pub fn profiles_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/profiles")
}

/// The profiles of this repository.
pub fn profiles() -> Vec<Profile> {
    static PROFILES: OnceLock<Vec<Profile>> = OnceLock::new();
    PROFILES
        .get_or_init(|| profiles_read(&profiles_folder()).unwrap())
        .clone()
}

/// A day.
pub fn day(text: &str) -> time::Date {
    hardening::Day::try_from(text.to_owned()).unwrap().0
}
