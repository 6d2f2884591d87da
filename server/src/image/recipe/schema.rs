//! The JSON Schema of recipes, for editors.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use super::deployer::DeployerRecipe;
use super::os::OsFile;

/// A recipe of either kind.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "Plumbline image recipe")]
#[allow(dead_code)] // Only its shape is used.
enum RecipeFile {
    Os(Box<OsFile>),
    Deployer(Box<DeployerRecipe>),
}

/// The shape of a class rule.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct ClassRule {
    /// Which paths: absolute, `*` and `?` within a name, `**` over folders.
    path: String,
    /// What must hold there.
    class: PathClass,
    /// A regular file with any content is as it should be, whatever is listed.
    #[schemars(default)]
    or_file: bool,
    /// A link that holds exactly one of these texts is as it should be, whatever is listed.
    #[schemars(default)]
    or_links: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)] // Only its shape is used.
enum PathClass {
    /// Must equal the manifest in everything.
    Pinned,
    /// Written once at installation, then the node's own: content is free.
    Seeded,
    /// Rendered for each node.
    Rendered,
    /// Must exist with its type; everything else is free.
    Volatile,
    /// Never looked at.
    Ignored,
}

/// The shape of a waiver of a hardening rule.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Waiver {
    /// The rule's id (`SSH-05`).
    rule: String,
    /// Why it may fail.
    reason: String,
    /// Who answers for it.
    approver: String,
    /// The last day it holds, as 2027-01-31.
    expires_at: String,
    /// Only this found value is let through; without it, any.
    #[schemars(default)]
    value: Option<String>,
}

/// The shape of a filesystem of an installed node.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Root {
    /// Mount point.
    mount: String,
    /// Filesystem.
    filesystem: FilesystemKind,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)] // Only its shape is used.
enum FilesystemKind {
    Ext4,
    Vfat,
}

/// The schema of `image.yaml`.
#[must_use]
pub fn recipe_schema() -> Schema {
    schema_for!(RecipeFile)
}
