//! Images for racks, built by the appliance's own command and kept between runs.
//!
//! A build takes minutes, so it is kept under a key made of everything that goes into it: recipes, the builder's
//! sources, the agent and the boot loaders. Runs get hard links of the immutable files and the keys that signed them.

use crate::command::run_checked;
use crate::environment::LabEnvironment;
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const COPY_LIMIT: Duration = Duration::from_secs(60);

/// Puts built images and the keys that signed them into `data_dir`, building what is missing or has changed.
///
/// # Errors
/// When a build fails; its output was shown.
pub fn provide(environment: &LabEnvironment, data_dir: &Path) -> Result<()> {
    let key = inputs_key(environment)?;
    let kept = environment.work_folder().join("images").join(&key[..16]);
    if !kept.join("complete").exists() {
        build(environment, &kept)?;
        File::create(kept.join("complete"))?;
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

fn build(environment: &LabEnvironment, kept: &Path) -> Result<()> {
    // Earlier builds are of other inputs; a half-made one of these inputs is of no use.
    let all = environment.work_folder().join("images");
    if all.exists() {
        fs::remove_dir_all(&all).with_context(|| format!("removing {}", all.display()))?;
    }
    fs::create_dir_all(kept)?;
    let agent = environment.agent.as_os_str();
    let recipe = |name: &str| environment.root.join("images").join(name);
    let plumbline = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new(&environment.server);
        command.args(arguments).arg("--data-dir").arg(kept);
        command
    };
    let (image, build, publish) = ("image".as_ref(), "build".as_ref(), "publish-agent".as_ref());
    let mut os = plumbline(&[image, build, recipe("debian-12-lab").as_os_str()]);
    os.arg("--loaders").arg(&environment.loaders);
    shown("building the image debian-12-lab", os)?;
    let mut deployer = plumbline(&[image, build, recipe("deployer").as_os_str()]);
    deployer
        .arg("--loaders")
        .arg(&environment.loaders)
        .arg("--agent")
        .arg(agent);
    shown("building the deployer", deployer)?;
    shown("publishing the agent layer", plumbline(&[image, publish, agent]))
}

/// Runs a long command with its lines on standard error.
fn shown(what: &str, mut command: Command) -> Result<()> {
    let started = Instant::now();
    eprintln!("{what} …");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{what}: cannot start {}", command.get_program().display()))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            eprintln!("  {}", line?);
        }
    }
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "{what} ended with {status}");
    eprintln!("{what}: {} s", started.elapsed().as_secs());
    Ok(())
}

/// Names everything a build depends on.
fn inputs_key(environment: &LabEnvironment) -> Result<String> {
    let mut hasher = Sha256::new();
    for folder in ["images", "server/src/image", "crates/manifest/src"] {
        add_folder(&mut hasher, &environment.root.join(folder))?;
    }
    add_file(&mut hasher, &environment.agent)?;
    add_folder(&mut hasher, &environment.loaders)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
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
