//! Images for racks, built by the appliance's own command and kept between runs.
//!
//! A build takes minutes, so it is kept with a key made of everything that goes into it: its recipe, the builder's
//! sources, the boot loaders, the agent. Runs get hard links of the immutable files and the keys that signed them.

use crate::command::run_checked;
use crate::environment::LabEnvironment;
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const COPY_LIMIT: Duration = Duration::from_secs(60);

/// An operating system, and the machine it takes.
#[derive(Debug, Clone)]
pub struct OsImage {
    /// Folder of its recipe: one of the workspace's by name, or anywhere by its path. Its last part is the image's name.
    pub recipe: PathBuf,
    /// The machine's disk.
    pub disk_bytes: u64,
    /// The machine's memory.
    pub memory_mib: u32,
}

impl Default for OsImage {
    /// The small image for virtual racks.
    fn default() -> Self {
        Self {
            recipe: "debian-12-lab".into(),
            disk_bytes: 4 << 30,
            memory_mib: 1024,
        }
    }
}

impl OsImage {
    /// The image's name.
    pub fn name(&self) -> String {
        let name = self.recipe.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Puts built images and the keys that signed them into `data_dir`, building what is missing or has changed.
///
/// # Errors
/// When a build fails; its output was shown.
pub fn provide(environment: &LabEnvironment, data_dir: &Path, os: &OsImage) -> Result<()> {
    let kept = environment.work_folder().join("images");
    let recipes = environment.root.join("images");
    let mut builder = folder_key(&environment.loaders)?;
    for sources in [
        "server/src/image",
        "crates/manifest/src",
        "crates/hardening/src",
        "crates/imports/src",
    ] {
        builder += &folder_key(&environment.root.join(sources))?;
    }
    let agent = file_key(&environment.agent)?;
    let (recipe, deployer) = (recipes.join(&os.recipe), recipes.join("deployer"));
    let builds = [
        Build {
            name: os.name(),
            key: builder.clone() + &recipe_key(&recipe)?,
            arguments: vec![
                "build".into(),
                recipe.into(),
                "--loaders".into(),
                environment.loaders.clone().into(),
            ],
        },
        Build {
            name: "deployer".to_owned(),
            key: builder.clone() + &recipe_key(&deployer)? + &agent,
            arguments: vec![
                "build".into(),
                deployer.into(),
                "--agent".into(),
                environment.agent.clone().into(),
            ],
        },
        Build {
            name: "agent layer".to_owned(),
            key: builder + &agent,
            arguments: vec!["publish-agent".into(), environment.agent.clone().into()],
        },
    ];
    for build in builds {
        build.keep(environment, &kept)?;
    }
    fs::create_dir_all(data_dir)?;
    for part in ["images", "keys"] {
        // Hard links: the store's files are immutable, and a run that damages one replaces it.
        run_checked(
            Command::new("cp")
                .arg("-al")
                .arg(kept.join(part))
                .arg(data_dir.join(part)),
            COPY_LIMIT,
        )?;
    }
    Ok(())
}

/// Builds an image of the recipe `text`, which lies on top of one in the workspace, beside those that
/// [`provide`] has put into `data_dir`. Kept between runs as they are.
///
/// # Errors
/// As [`provide`].
pub fn derive(environment: &LabEnvironment, data_dir: &Path, name: &str, text: &str) -> Result<()> {
    let kept = environment.work_folder().join("images");
    let recipe = super::recipes::write(environment, name, &[("image.yaml", text)])?;
    // What it lies on is a part of what goes into it, as it was built.
    let stamp = fs::read_to_string(kept.join("debian-12-lab.stamp"))?;
    let build = Build {
        name: "second image".to_owned(),
        key: folder_key(&recipe)? + &stamp.replace('\n', ""),
        arguments: vec![
            "build".into(),
            recipe.into(),
            "--loaders".into(),
            environment.loaders.clone().into(),
        ],
    };
    build.keep(environment, &kept)?;
    run_checked(
        Command::new("cp")
            .arg("-aln")
            .arg(kept.join("images").join("."))
            .arg(data_dir.join("images")),
        COPY_LIMIT,
    )
    .map(drop)
}

/// One image, and what it is built from.
struct Build {
    name: String,
    key: String,
    arguments: Vec<OsString>,
}

impl Build {
    /// Builds the image unless the one kept has the same inputs; the one before it is forgotten.
    fn keep(&self, environment: &LabEnvironment, kept: &Path) -> Result<()> {
        let stamp = kept.join(self.name.replace(' ', "-")).with_extension("stamp");
        let before = fs::read_to_string(&stamp).unwrap_or_default();
        let (key, digest) = before.split_once('\n').unwrap_or_default();
        if key == self.key {
            return Ok(());
        }
        fs::create_dir_all(kept)?;
        let mut command = Command::new(&environment.server);
        command
            .args(["image", "--json"])
            .args(&self.arguments)
            .arg("--data-dir")
            .arg(kept);
        let output = shown(&format!("building {}", self.name), command)?;
        let built: serde_json::Value = serde_json::from_str(&output).context("the build's JSON")?;
        let built = built["digest"].as_str().context("the digest of what was built")?;
        if !digest.is_empty() && digest != built {
            for part in ["manifests", "artifacts"] {
                let old = kept.join("images").join(part).join(digest.trim());
                if old.exists() {
                    fs::remove_dir_all(&old).with_context(|| format!("removing {}", old.display()))?;
                }
            }
        }
        fs::write(&stamp, format!("{}\n{built}", self.key))?;
        Ok(())
    }
}

/// Runs a long command, its progress on standard error as it goes; returns its standard output.
fn shown(what: &str, mut command: Command) -> Result<String> {
    let started = Instant::now();
    eprintln!("{what} …");
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{what}: cannot start {}", command.get_program().display()))?;
    anyhow::ensure!(output.status.success(), "{what} ended with {}", output.status);
    eprintln!("{what}: {} s", started.elapsed().as_secs());
    String::from_utf8(output.stdout).with_context(|| format!("{what}: its output"))
}

/// All that a recipe says, with those under it and the profiles of hardening beside it.
fn recipe_key(folder: &Path) -> Result<String> {
    let mut key = folder_key(folder)?;
    let path = folder.join("image.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let beside = folder.parent().context("the folder of recipes")?;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("extends:") {
            key += &recipe_key(&beside.join(name.trim()))?;
        } else if line.starts_with("hardening:") {
            key += &folder_key(&beside.join("profiles"))?;
        }
    }
    Ok(key)
}

fn folder_key(folder: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    add_folder(&mut hasher, folder)?;
    Ok(hex(hasher))
}

fn file_key(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    add_file(&mut hasher, path)?;
    Ok(hex(hasher))
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn add_folder(hasher: &mut Sha256, folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            add_folder(hasher, &path)?;
        } else if path.is_file() {
            add_file(hasher, &path)?;
        }
    }
    Ok(())
}

fn add_file(hasher: &mut Sha256, path: &Path) -> Result<()> {
    let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    hasher.update(path.as_os_str().as_encoded_bytes());
    hasher.update((content.len() as u64).to_be_bytes());
    hasher.update(&content);
    Ok(())
}
