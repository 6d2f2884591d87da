//! The `bad-signature` scenario: images that a deployer must not install, broken behind the server's back.
//!
//! The server looks at what is asked for, so each image is in order when its deployment is asked for; it is broken while
//! the machine stands still or is off, and what the deployer does when it goes on is its own doing.

use super::run::{IMAGE, NODE_NAME, Run};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use manifest::{Digest, KeyPair, Manifest};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A deployer's question for a task may be held by the server for this long; then none is under way.
const TASK_WAIT: Duration = Duration::from_secs(protocol::limits::TASK_WAIT_SECS_MAX + 4);
const FAIL_LIMIT: Duration = Duration::from_secs(900);
const STORE_LIMIT: Duration = Duration::from_secs(30);
/// What lies at the beginning of the disk before anything else: no boot code that firmware would start.
const MARK: [u8; 4096] = [0x5A; 4096];

pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "signing", kind)?;
    let disk = Disk::mark(&run.machine.spec().disks[0].path)?;
    let images = Images::open(&run)?;
    let first_key = key_that_signs(&run)?;
    // Copies under names of their own; both are in order until their turn.
    let (edited, revoked) = (images.copy(&run, "edited-image")?, images.copy(&run, "revoked-image")?);
    let stolen = images.copy(&run, "stolen-image")?;
    run.power_on_and_discover()?;
    let mut refused = serde_json::Map::new();

    let good = images.signature(images.base)?;
    let reason = refuse(
        &mut run,
        &disk,
        Asked::Approval,
        "an image whose signature is gone",
        |_| images.remove_signature(images.base),
    )?;
    ensure!(reason.contains("it is not signed"), "unsigned: {reason}");
    refused.insert("unsigned".to_owned(), json!(reason));
    images.put_signature(images.base, &good)?;

    let asked = Asked::Deployment(edited);
    let reason = refuse(
        &mut run,
        &disk,
        asked,
        "a manifest that was edited after it was signed",
        |_| images.put_signature(edited, &good),
    )?;
    ensure!(reason.contains("changed after it was signed"), "edited: {reason}");
    refused.insert("edited".to_owned(), json!(reason));

    let asked = Asked::Deployment(images.base);
    let foreign = KeyPair::generate()?;
    let foreign_id = foreign.public().id()?.to_string();
    wait_usable(&run, images.base)?;
    let reason = refuse(&mut run, &disk, asked, "an image that somebody else signed", |_| {
        let signature = foreign.sign(&images.manifest(images.base)?, "plumbline os")?;
        images.put_signature(images.base, signature.as_str())
    })?;
    ensure!(
        reason.contains(&foreign_id) && reason.contains("not trusted here"),
        "foreign: {reason}"
    );
    refused.insert("foreign_key".to_owned(), json!(reason));
    images.put_signature(images.base, &good)?;
    wait_usable(&run, images.base)?;

    step("the key is rotated, and the new one signs what lives on");
    let of_stolen = images.signature(stolen)?;
    let rotated = run.appliance.cli(&["key", "rotate", "--resign"])?;
    let key = rotated["key"]["id"].as_str().context("the new key")?.to_owned();
    ensure!(rotated["before"] == first_key.as_str(), "{rotated}");
    ensure!(
        rotated["resigned_count"] == 4
            && rotated["left"][0]
                .as_str()
                .is_some_and(|left| left.starts_with("edited-image@")),
        "three images and the deployer are signed again, what nobody trusts is not: {rotated}"
    );
    images.put_signature(stolen, &of_stolen)?;
    let asked = Asked::Deployment(stolen);
    let reason = refuse(&mut run, &disk, asked, "an image by a key that was revoked", |run| {
        let why = "the laptop that held it was stolen";
        run.appliance
            .cli(&["key", "revoke", &first_key, "--reason", why])
            .map(drop)
    })?;
    ensure!(
        reason.contains(&first_key) && reason.contains("the laptop that held it was stolen"),
        "revoked key: {reason}"
    );
    refused.insert("revoked_key".to_owned(), json!(reason));
    server_refuses(&run, stolen, "the laptop that held it was stolen")?;

    let asked = Asked::Deployment(revoked);
    let reason = refuse(&mut run, &disk, asked, "an image that was revoked", |run| {
        let image = revoked.to_string();
        let why = "its kernel has a hole";
        let answer = run.appliance.cli(&["image", "revoke", &image, "--reason", why])?;
        let waits = json!([{ "node": NODE_NAME, "how": "waits" }]);
        ensure!(answer["users"] == waits, "who waits for it is named: {answer}");
        Ok(())
    })?;
    ensure!(reason.contains("its kernel has a hole"), "revoked image: {reason}");
    refused.insert("revoked_image".to_owned(), json!(reason));
    server_refuses(&run, revoked, "its kernel has a hole")?;

    step("the image that the new key has signed is installed");
    run.cut_power()?;
    run.appliance.cli(&["node", "deploy", NODE_NAME, "--image", IMAGE])?;
    run.power_on()?;
    run.wait_deployed()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    ensure!(
        !disk.is_untouched()?,
        "the disk that was watched is the one that is installed on"
    );

    step("it is revoked as well: its node is not clean any more");
    let image = images.base.to_string();
    let answer = run
        .appliance
        .cli(&["image", "revoke", &image, "--reason", "it was the lab's"])?;
    ensure!(
        answer["users"] == json!([{ "node": NODE_NAME, "how": "runs" }]),
        "{answer}"
    );
    let drift = run.drift()?;
    let verdict = drift["verdict"].clone();
    let shown = drift["reason"].as_str().unwrap_or_default().to_owned();
    ensure!(verdict == "unknown" && shown.contains("it was the lab's"), "{drift}");

    let audit = run.appliance.cli(&["audit"])?;
    let decisions = ["image_key_rotated", "image_key_revoked", "image_revoked"];
    for action in decisions {
        let mut events = audit.as_array().into_iter().flatten();
        ensure!(
            events.any(|event| event["action"] == action),
            "{action} in the audit log: {audit}"
        );
    }
    let outcome = json!({
        "scenario": "bad-signature", "ok": true, "firmware": kind, "refused": refused, "disk_untouched": true,
        "installed_signed_by": key, "verdict_of_a_revoked_image": verdict, "audited": decisions,
    });
    run.stop()?;
    Ok(outcome)
}

/// How an image is asked for.
#[derive(Clone, Copy)]
enum Asked {
    /// A new node is approved for the lab's image.
    Approval,
    /// A deployment of this one.
    Deployment(Digest),
}

/// Asks for an image and breaks it before the deployer hears of it; gives the deployer's reason for not installing it.
fn refuse(
    run: &mut Run,
    disk: &Disk,
    asked: Asked,
    what: &str,
    spoil: impl FnOnce(&Run) -> Result<()>,
) -> Result<String> {
    step(what);
    match asked {
        // It waits in the deployer, which takes up what it is told first.
        Asked::Approval => {
            run.machine.qmp("stop", None)?;
            std::thread::sleep(TASK_WAIT);
            run.approve()?;
            spoil(run)?;
            run.machine.qmp("cont", None)?;
        }
        // Every further one takes a boot of its own.
        Asked::Deployment(image) => {
            run.cut_power()?;
            run.appliance
                .cli(&["node", "deploy", NODE_NAME, "--image", &image.to_string()])?;
            spoil(run)?;
            run.power_on()?;
        }
    }
    let node = run.wait_state(FAIL_LIMIT, &["failed"])?;
    let reason = node["state_reason"].as_str().unwrap_or_default().to_owned();
    step(&format!("refused: {reason}"));
    ensure!(reason.contains("verify"), "the reason should name the stage: {reason}");
    let events = run.appliance.cli(&["node", "events", NODE_NAME])?;
    let is_told = |event: &Value| {
        let detail = event["detail"].as_str().unwrap_or_default();
        event["kind"] == "deployment_failed" && (reason.contains(detail) || detail.contains(&reason))
    };
    ensure!(
        events.as_array().is_some_and(|events| events.iter().any(is_told)),
        "the timeline has no such reason: {events}"
    );
    ensure!(disk.is_untouched()?, "something was written to the disk");
    Ok(reason)
}

/// The server itself does not take it any more either.
fn server_refuses(run: &Run, image: Digest, words: &str) -> Result<()> {
    let asked = ["node", "deploy", NODE_NAME, "--image", &image.to_string()];
    match run.appliance.cli(&asked) {
        Ok(answer) => anyhow::bail!("the server took a deployment of {image}: {answer}"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains("must not be used") && text.contains(words), "{text}");
            Ok(())
        }
    }
}

/// The key that signs on the server.
fn key_that_signs(run: &Run) -> Result<String> {
    let keys = run.appliance.cli(&["key", "list"])?;
    let mut keys = keys.as_array().into_iter().flatten();
    let key = keys
        .find(|key| key["signs_here"] == true)
        .and_then(|key| key["id"].as_str());
    Ok(key.context("a key that signs on the server")?.to_owned())
}

fn wait_usable(run: &Run, image: Digest) -> Result<()> {
    wait_until(
        STORE_LIMIT,
        "the server to see that the signature is right again",
        || {
            let shown = run.appliance.cli(&["image", "show", &image.to_string()])?;
            Ok(shown["unusable"].is_null().then_some(()))
        },
    )
}

/// The image store's folder.
struct Images {
    folder: PathBuf,
    key: PathBuf,
    base: Digest,
}

impl Images {
    fn open(run: &Run) -> Result<Self> {
        let shown = run.appliance.cli(&["image", "show", IMAGE])?;
        let base = shown["digest"].as_str().context("the image's digest")?.parse()?;
        let data = run.appliance.data_dir();
        Ok(Self {
            folder: data.join("images/manifests"),
            key: data.join("keys/image.key"),
            base,
        })
    }

    fn path(&self, image: Digest, name: &str) -> PathBuf {
        self.folder.join(image.to_string()).join(name)
    }

    fn manifest(&self, image: Digest) -> Result<Vec<u8>> {
        Ok(fs::read(self.path(image, "manifest.ndjson"))?)
    }

    fn signature(&self, image: Digest) -> Result<String> {
        Ok(fs::read_to_string(self.path(image, "manifest.ndjson.minisig"))?)
    }

    /// The file is replaced: other runs link to the old one.
    fn put_signature(&self, image: Digest, text: &str) -> Result<()> {
        let (path, next) = (
            self.path(image, "manifest.ndjson.minisig"),
            self.path(image, "signature.new"),
        );
        fs::write(&next, text)?;
        Ok(fs::rename(next, path)?)
    }

    fn remove_signature(&self, image: Digest) -> Result<()> {
        Ok(fs::remove_file(self.path(image, "manifest.ndjson.minisig"))?)
    }

    /// An image of this name with the same contents, rightly signed; comes back when it is registered.
    fn copy(&self, run: &Run, name: &str) -> Result<Digest> {
        let mut manifest = Manifest::decode(&self.manifest(self.base)?)?;
        name.clone_into(&mut manifest.header.name);
        let bytes = manifest.encode()?;
        let image = Digest::of(&bytes);
        let key = KeyPair::from_secret_text(&fs::read_to_string(&self.key)?)?;
        fs::create_dir_all(self.folder.join(image.to_string()))?;
        fs::copy(self.path(self.base, "packs.json"), self.path(image, "packs.json"))?;
        fs::write(self.path(image, "manifest.ndjson"), &bytes)?;
        self.put_signature(image, key.sign(&bytes, name)?.as_str())?;
        wait_until(STORE_LIMIT, &format!("{name} to be registered"), || {
            let listed = run.appliance.cli(&["image", "list"])?;
            let mut listed = listed.as_array().into_iter().flatten();
            Ok(listed
                .any(|one| one["digest"] == image.to_string().as_str())
                .then_some(()))
        })?;
        Ok(image)
    }
}

/// The machine's disk, with something on it that an installation would take away.
struct Disk {
    path: PathBuf,
    blocks: u64,
}

impl Disk {
    fn mark(path: &Path) -> Result<Self> {
        let mut file = File::options().write(true).open(path)?;
        for at in Self::places(path)? {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&MARK)?;
        }
        file.sync_all()?;
        Ok(Self {
            path: path.to_owned(),
            blocks: fs::metadata(path)?.blocks(),
        })
    }

    /// The beginning and the end: where partition tables and signatures of filesystems are.
    fn places(path: &Path) -> Result<[u64; 2]> {
        let size = fs::metadata(path)?.len();
        Ok([0, size.checked_sub(MARK.len() as u64).context("a disk of some size")?])
    }

    fn is_untouched(&self) -> Result<bool> {
        if fs::metadata(&self.path)?.blocks() != self.blocks {
            return Ok(false);
        }
        let mut file = File::open(&self.path)?;
        for at in Self::places(&self.path)? {
            let mut found = [0; MARK.len()];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut found)?;
            if found != MARK {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
