//! What an image version is beside its files, and which nodes are to be like it.

use std::collections::BTreeMap;

use manifest::{Header, Manifest};
use protocol::NodeId;
use serde::Serialize;

use super::{App, AppError};

/// Nodes named; a page shows fewer, and the list of nodes all.
const NODES_MAX: i64 = 20_000;

/// The kernel of an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageKernel {
    /// `uname -r`.
    pub release: String,
    /// Its command line, without what is per node or per boot.
    pub command_line: String,
}

/// A package of an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImagePackage {
    /// Name.
    pub name: String,
    /// Debian architecture.
    pub architecture: String,
    /// Version.
    pub version: String,
}

/// A unit file of an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageUnit {
    /// Name with suffix.
    pub name: String,
    /// Its state: `enabled`, `disabled`, `static`, `masked`, ….
    pub state: String,
}

/// An account of an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageUser {
    /// Login name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Number of its own group.
    pub gid: u32,
    /// Home folder.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// A group of an image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageGroup {
    /// Name.
    pub name: String,
    /// Number.
    pub gid: u32,
    /// Members beside those whose own group it is.
    pub members: Vec<String>,
}

/// A filesystem of a node with the image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageFilesystem {
    /// Mount point.
    pub mount: String,
    /// `ext4` or `vfat`.
    pub filesystem: String,
}

/// A node that is to be like the image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageNode {
    /// Id.
    pub id: NodeId,
    /// Name, once somebody gave it one.
    pub name: Option<String>,
}

/// What an image is beside its files.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageFacts {
    /// The kernel it boots; none for an agent layer.
    pub kernel: Option<ImageKernel>,
    /// Filesystems of a node with it.
    pub filesystems: Vec<ImageFilesystem>,
    /// Packages, by name.
    pub packages: Vec<ImagePackage>,
    /// Unit files, by name.
    pub units: Vec<ImageUnit>,
    /// Sysctls that must hold, by key.
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules that must be loaded.
    pub modules_required: Vec<String>,
    /// Kernel modules that must not be loaded.
    pub modules_forbidden: Vec<String>,
    /// Accounts.
    pub users: Vec<ImageUser>,
    /// Groups.
    pub groups: Vec<ImageGroup>,
    /// Nodes whose baseline has it, by name, at most 20,000.
    pub nodes: Vec<ImageNode>,
}

/// Tells what an image version is beside its files.
///
/// # Errors
/// [`AppError::NotFound`] when it is not registered or its data are gone.
pub async fn image_facts(app: &App, reference: &str) -> Result<ImageFacts, AppError> {
    let image = app.store.image_find(reference).await?;
    let bytes = app.images.manifest_bytes(image.digest).await?;
    let nodes = app.store.node_list_of_image(image.digest, NODES_MAX).await?;
    let decode = move || Manifest::decode(&bytes).map(|manifest| manifest.header);
    let header = tokio::task::spawn_blocking(decode)
        .await
        .map_err(AppError::internal)??;
    let nodes = nodes.into_iter().map(|(id, name)| ImageNode { id, name }).collect();
    Ok(facts(header, nodes))
}

fn facts(header: Header, nodes: Vec<ImageNode>) -> ImageFacts {
    ImageFacts {
        kernel: header.kernel.map(|kernel| ImageKernel {
            release: kernel.release,
            command_line: kernel.command_line,
        }),
        filesystems: header
            .roots
            .iter()
            .map(|root| ImageFilesystem {
                mount: root.mount.to_string(),
                filesystem: root.filesystem.as_str().to_owned(),
            })
            .collect(),
        packages: header
            .packages
            .into_iter()
            .map(|package| ImagePackage {
                name: package.name,
                architecture: package.architecture,
                version: package.version,
            })
            .collect(),
        units: header
            .units
            .into_iter()
            .map(|unit| ImageUnit {
                name: unit.name,
                state: unit.state,
            })
            .collect(),
        sysctls: header.sysctls,
        modules_required: header.modules_required,
        modules_forbidden: header.modules_forbidden,
        users: header
            .users
            .into_iter()
            .map(|user| ImageUser {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
                home: user.home,
                shell: user.shell,
            })
            .collect(),
        groups: header
            .groups
            .into_iter()
            .map(|group| ImageGroup {
                name: group.name,
                gid: group.gid,
                members: group.members,
            })
            .collect(),
        nodes,
    }
}
