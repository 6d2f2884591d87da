//! A root from elsewhere: a Debian root of three layers in a real registry becomes an image that boots.

use super::images::OsImage;
use super::run::{Run, Site, entries};
use super::{BootKind, recipes, step};
use crate::command::{run_captured, run_checked};
use crate::environment::LabEnvironment;
use crate::process::Supervised;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROOT_LIMIT: Duration = Duration::from_secs(1200);
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// What a root needs to become a node, as somebody's container file would install it.
const PACKAGES: &str = "ca-certificates,dbus,dosfstools,e2fsprogs,initramfs-tools,iproute2,iputils-ping,kmod,libcap2-bin,\
    libpam-systemd,linux-image-cloud-amd64,openssh-server,procps,systemd-sysv,systemd-timesyncd,udev,zstd";
/// Upper layers: a file that goes, a folder that is another one, a file that comes; and, for an image that cannot boot,
/// no kernel.
const WHITEOUT: &str = "usr/share/doc/.wh.bash";
const OPAQUE: &str = "usr/share/perl5/.wh..wh..opq";
const NO_KERNEL: [&str; 2] = ["boot/.wh..wh..opq", "usr/lib/.wh.modules"];

/// The `oci-import` scenario.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let folder = environment.work_folder().join("oci");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    step("a Debian root is made, as somebody's container build would");
    let layers = layers(&folder)?;
    let registry = Registry::start(environment, &folder)?;
    let good = layout(&folder.join("good"), &layers[..2])?;
    let reference = registry.push(&good, "lab/root:1")?;
    step("an image without a kernel is refused with what to add");
    let bare = layout(&folder.join("bare"), &[&layers[..2], &layers[2..]].concat())?;
    let refused = refused(environment, &folder, &registry.push(&bare, "lab/bare:1")?)?;

    let recipe = recipes::write(environment, "imported", &[("image.yaml", &recipe(&reference))])?;
    let site = Site {
        os: OsImage {
            recipe,
            ..OsImage::default()
        },
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "import", kind, &site)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let ssh = run.ssh_target()?;
    let look = "cat /etc/imported; ls /usr/share/doc/bash /usr/share/perl5 2>/dev/null; getcap /usr/bin/ping; \
                stat -c %h /usr/bin/perl";
    let said = ssh.run(run.appliance.namespace(), look, COMMAND_LIMIT)?;
    let lines: Vec<&str> = said.stdout.lines().collect();
    ensure!(
        lines
            == [
                "of the third layer",
                "/usr/share/perl5:",
                "kept",
                "/usr/bin/ping cap_net_raw=ep",
                "2"
            ],
        "what the layers come to: {said:?}"
    );
    run.reboot_and_scan(&ssh)?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let entries = entries(&drift["report"]["scan"]);
    run.stop()?;
    drop(registry);
    fs::remove_dir_all(&folder)?;
    Ok(json!({
        "scenario": "oci-import", "ok": true, "firmware": kind, "reference": reference, "entries_scanned": entries,
        "verdict": drift["verdict"], "refused_without_kernel": refused,
    }))
}

fn recipe(reference: &str) -> String {
    format!(
        "kind: os\nname: imported\nextends: common\nbase: {{registry: \"{reference}\", plain_http: true}}\n\
         units: {{enable: [ssh.service, systemd-timesyncd.service], mask: [apt-daily.timer, apt-daily-upgrade.timer, \
         dpkg-db-backup.timer, e2scrub_all.timer, e2scrub_reap.service, fstrim.timer]}}\n\
         remove: [/vmlinuz, /vmlinuz.old, /initrd.img, /initrd.img.old]\n"
    )
}

/// Builds an image from what cannot boot; gives what the build said.
fn refused(environment: &LabEnvironment, folder: &Path, reference: &str) -> Result<String> {
    let recipe = recipes::write(
        environment,
        "bare",
        &[("image.yaml", &recipe(reference).replace("imported", "bare"))],
    )?;
    let mut build = Command::new(&environment.server);
    build.args(["image", "build"]).arg(recipe);
    build.arg("--loaders").arg(&environment.loaders);
    build.arg("--data-dir").arg(folder.join("data"));
    let said = run_captured(&mut build, COMMAND_LIMIT)?;
    ensure!(!said.status.success(), "an image without a kernel was built: {said:?}");
    let (_, list) = said
        .stderr
        .split_once("what to change:")
        .with_context(|| said.stderr.clone())?;
    ensure!(list.contains("linux-image-amd64"), "the package to add: {list}");
    let images = fs::read_dir(folder.join("data/images/manifests")).map_or(0, Iterator::count);
    ensure!(images == 0, "{images} images are left of a refused one");
    Ok(list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; "))
}

/// The layers, lowest first: the root, what lies on it, and what takes the kernel away.
fn layers(folder: &Path) -> Result<Vec<PathBuf>> {
    let root = folder.join("root.tar");
    let mut make = Command::new("mmdebstrap");
    make.args(["--variant=minbase", "--aptopt=APT::Install-Recommends \"false\""])
        .arg(format!("--include={PACKAGES}"))
        // What belongs to one machine, as a careful container file removes it.
        .arg("--customize-hook=rm -f \"$1\"/etc/ssh/ssh_host_* \"$1\"/var/lib/dbus/machine-id && : > \"$1\"/etc/machine-id")
        .args(["--format=tar", "bookworm"])
        .arg(&root);
    run_checked(&mut make, ROOT_LIMIT)?;
    let upper = folder.join("upper");
    for (path, content) in [
        (WHITEOUT, ""),
        (OPAQUE, ""),
        ("usr/share/perl5/kept", ""),
        ("etc/imported", "of the third layer\n"),
    ] {
        write(&upper, path, content)?;
    }
    let bare = folder.join("without-kernel");
    for path in NO_KERNEL {
        write(&bare, path, "")?;
    }
    Ok(vec![root, packed(&upper)?, packed(&bare)?])
}

fn write(folder: &Path, path: &str, content: &str) -> Result<()> {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    Ok(fs::write(path, content)?)
}

fn packed(folder: &Path) -> Result<PathBuf> {
    let archive = folder.with_extension("tar");
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "-cf"])
        .arg(&archive);
    run_checked(tar.arg("-C").arg(folder).arg("."), COMMAND_LIMIT)?;
    Ok(archive)
}

/// An OCI image layout of these layers.
fn layout(folder: &Path, layers: &[PathBuf]) -> Result<PathBuf> {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let mut descriptors = Vec::new();
    for layer in layers {
        let mut hasher = Sha256::new();
        let bytes = io::copy(&mut File::open(layer)?, &mut HashWriter(&mut hasher))?;
        let digest = hex(&hasher.finalize());
        let blob = blobs.join(&digest);
        if !blob.exists() {
            fs::hard_link(layer, blob)?;
        }
        descriptors.push(json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{digest}"), "size": bytes,
        }));
    }
    let blob = |media_type: &str, value: &Value| -> Result<Value> {
        let bytes = serde_json::to_vec(value)?;
        let digest = hex(&Sha256::digest(&bytes));
        fs::write(blobs.join(&digest), &bytes)?;
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
    };
    let diff_ids: Vec<&Value> = descriptors.iter().map(|layer| &layer["digest"]).collect();
    let config = blob(
        "application/vnd.oci.image.config.v1+json",
        &json!({ "architecture": "amd64", "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": diff_ids } }),
    )?;
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = blob(
        manifest_type,
        &json!({ "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": descriptors }),
    )?;
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(folder.join("index.json"), serde_json::to_vec(&index)?)?;
    Ok(folder.to_owned())
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Debian's `docker-registry` on a loopback port.
struct Registry {
    address: String,
    _process: Supervised,
}

impl Registry {
    fn start(environment: &LabEnvironment, folder: &Path) -> Result<Self> {
        // Free a moment ago; nobody else here takes ports at random.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let configuration = folder.join("registry.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n",
            folder.join("registry").display()
        );
        fs::write(&configuration, text)?;
        let mut command = Command::new(environment.registry());
        command.arg("serve").arg(&configuration);
        let process = Supervised::spawn("docker-registry", command, &folder.join("registry.log"))?;
        wait_until(Duration::from_secs(30), "the registry to listen", || {
            Ok(TcpStream::connect(&address).is_ok().then_some(()))
        })?;
        Ok(Self {
            address,
            _process: process,
        })
    }

    /// Brings a layout there; gives the reference, by its digest.
    fn push(&self, layout: &Path, name: &str) -> Result<String> {
        let target = format!("{}/{name}", self.address);
        let digest = layout.with_extension("digest");
        let mut copy = Command::new("skopeo");
        copy.args([
            "--insecure-policy",
            "copy",
            "--quiet",
            "--dest-tls-verify=false",
            "--preserve-digests",
        ])
        .arg("--digestfile")
        .arg(&digest)
        .arg(format!("oci:{}", layout.display()))
        .arg(format!("docker://{target}"));
        run_checked(&mut copy, COMMAND_LIMIT)?;
        let digest = fs::read_to_string(&digest)?;
        let (repository, _) = target.rsplit_once(':').context("a tag")?;
        Ok(format!("{repository}@{}", digest.trim()))
    }
}
