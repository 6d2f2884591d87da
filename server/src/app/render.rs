//! The node's layer above the image: rendered files and the manifest that names them. Pure.
//!
//! What is rendered here is part of the node's baseline, so the same inputs give the same bytes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use manifest::{
    Digest, Entry, EntryKind, FileContent, Header, Kernel, Manifest, ManifestError, ManifestKind, PathClass, TreePath,
    Xattrs,
};
use protocol::latest::Layout;

/// Everything a node's files depend on.
#[derive(Clone, Debug)]
pub struct RenderInput<'a> {
    /// Hostname, an RFC 1123 label.
    pub node_name: &'a str,
    /// 32 hexadecimal digits.
    pub machine_id: &'a str,
    /// MAC of the interface the node boots from.
    pub boot_mac: &'a str,
    /// DNS domain.
    pub domain: Option<&'a str>,
    /// DNS servers.
    pub dns: &'a [Ipv4Addr],
    /// Keys that may sign in as root.
    pub authorized_keys: &'a [String],
    /// SSH host public keys the deployer made.
    pub ssh_host_keys: &'a [String],
    /// Partition and filesystem ids.
    pub layout: &'a Layout,
    /// The image's kernel.
    pub kernel: &'a Kernel,
    /// Additions to its command line.
    pub kernel_arguments: &'a str,
    /// Where the agent reports.
    pub agents_url: &'a str,
    /// The appliance's CA, PEM.
    pub ca_certificate: &'a str,
    /// Key that signs images.
    pub image_key: &'a str,
    /// Key that signs agent layers.
    pub agent_release_key: &'a str,
    /// Public key that signs remediation jobs.
    pub job_key: &'a str,
    /// Seconds between two scans.
    pub scan_interval_secs: u64,
    /// Modification time of the files, seconds since 1970.
    pub mtime: i64,
}

/// A rendered overlay.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Its manifest, canonical text.
    pub manifest: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// File contents by digest.
    pub files: BTreeMap<Digest, Vec<u8>>,
}

/// Renders a node's overlay.
///
/// # Errors
/// [`ManifestError`] when a path is named twice; none of these is.
pub fn overlay(input: &RenderInput<'_>) -> Result<Overlay, ManifestError> {
    let mut tree = Tree {
        entries: Vec::new(),
        files: BTreeMap::new(),
        mtime: input.mtime,
    };
    let command_line = join_words(&input.kernel.command_line, input.kernel_arguments);

    tree.file("/etc/hostname", 0o644, format!("{}\n", input.node_name))?;
    tree.file("/etc/hosts", 0o644, hosts(input))?;
    tree.file("/etc/machine-id", 0o444, format!("{}\n", input.machine_id))?;
    tree.file("/etc/fstab", 0o644, fstab(input.layout))?;
    tree.file("/etc/resolv.conf", 0o644, resolv_conf(input))?;
    tree.file("/etc/systemd/network/10-boot.network", 0o644, network(input))?;
    tree.folder("/root/.ssh", 0o700, PathClass::Pinned)?;
    tree.file("/root/.ssh/authorized_keys", 0o600, lines(input.authorized_keys))?;
    tree.file("/etc/ssh/ssh_host_ed25519_key.pub", 0o644, lines(input.ssh_host_keys))?;
    tree.made_on_node("/etc/ssh/ssh_host_ed25519_key", 0o600)?;
    tree.folder("/etc/plumbline", 0o755, PathClass::Pinned)?;
    tree.file("/etc/plumbline/ca.pem", 0o644, input.ca_certificate.to_owned())?;
    tree.file("/etc/plumbline/agent.toml", 0o644, agent_toml(input))?;
    tree.folder("/var/lib/plumbline", 0o700, PathClass::Volatile)?;
    tree.folder("/var/lib/plumbline/identity", 0o700, PathClass::Volatile)?;
    tree.made_on_node("/var/lib/plumbline/identity/key.pem", 0o600)?;
    tree.made_on_node("/var/lib/plumbline/identity/certificate.pem", 0o644)?;
    tree.folder("/boot/efi/EFI/debian", 0o755, PathClass::Pinned)?;
    tree.file("/boot/efi/EFI/debian/grub.cfg", 0o644, grub_cfg(input, &command_line))?;

    let mut header = Header::new(ManifestKind::Overlay, input.node_name, input.mtime.to_string());
    header.kernel = Some(Kernel {
        command_line,
        ..input.kernel.clone()
    });
    let manifest = Manifest::new(header, tree.entries)?.encode()?;
    let digest = Digest::of(&manifest);
    // The canonical form is ASCII or UTF-8 by construction.
    let manifest = String::from_utf8_lossy(&manifest).into_owned();
    Ok(Overlay {
        manifest,
        digest,
        files: tree.files,
    })
}

struct Tree {
    entries: Vec<Entry>,
    files: BTreeMap<Digest, Vec<u8>>,
    mtime: i64,
}

impl Tree {
    fn push(&mut self, path: &str, class: PathClass, kind: EntryKind, mode: u32) -> Result<(), ManifestError> {
        let path: TreePath = path.parse()?;
        self.entries.push(Entry {
            path,
            class,
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime: self.mtime,
            xattrs: Xattrs::new(),
        });
        Ok(())
    }

    fn file(&mut self, path: &str, mode: u32, content: String) -> Result<(), ManifestError> {
        let content = content.into_bytes();
        let digest = Digest::of(&content);
        let kind = EntryKind::File(Some(FileContent {
            size: content.len() as u64,
            digest,
        }));
        self.files.insert(digest, content);
        self.push(path, PathClass::Rendered, kind, mode)
    }

    fn folder(&mut self, path: &str, mode: u32, class: PathClass) -> Result<(), ManifestError> {
        self.push(path, class, EntryKind::Directory, mode)
    }

    /// A file whose content only the node has: its private keys.
    fn made_on_node(&mut self, path: &str, mode: u32) -> Result<(), ManifestError> {
        self.push(path, PathClass::Seeded, EntryKind::File(None), mode)
    }
}

fn join_words(first: &str, second: &str) -> String {
    first
        .split_whitespace()
        .chain(second.split_whitespace())
        .collect::<Vec<_>>()
        .join(" ")
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", line.trim())).collect()
}

fn hosts(input: &RenderInput<'_>) -> String {
    let full = match input.domain {
        Some(domain) => format!("{0}.{domain} {0}", input.node_name),
        None => input.node_name.to_owned(),
    };
    format!("127.0.0.1 localhost\n127.0.1.1 {full}\n::1 localhost ip6-localhost ip6-loopback\n")
}

fn fstab(layout: &Layout) -> String {
    let volume = &layout.esp_volume_id;
    let (high, low) = volume.split_at_checked(4).unwrap_or((volume, ""));
    format!(
        "UUID={} / ext4 defaults,errors=remount-ro 0 1\nUUID={high}-{low} /boot/efi vfat umask=0077 0 2\n",
        layout.root_uuid
    )
}

fn resolv_conf(input: &RenderInput<'_>) -> String {
    let mut text = String::new();
    if let Some(domain) = input.domain {
        text.push_str(&format!("search {domain}\n"));
    }
    for server in input.dns {
        text.push_str(&format!("nameserver {server}\n"));
    }
    text
}

fn network(input: &RenderInput<'_>) -> String {
    // The MAC is the client id in firmware and loader too: one address in every stage.
    format!(
        "[Match]\nPermanentMACAddress={}\n\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\n\n\
         [DHCPv4]\nClientIdentifier=mac\nUseHostname=no\nUseDNS=no\n",
        input.boot_mac
    )
}

fn agent_toml(input: &RenderInput<'_>) -> String {
    format!(
        "server = \"{}\"\nca_certificate = \"/etc/plumbline/ca.pem\"\n\
         identity_dir = \"/var/lib/plumbline/identity\"\nstate_dir = \"/var/lib/plumbline/state\"\n\
         image_key = \"{}\"\nagent_release_key = \"{}\"\njob_key = \"{}\"\nscan_interval_secs = {}\n",
        input.agents_url, input.image_key, input.agent_release_key, input.job_key, input.scan_interval_secs
    )
}

/// What both GRUBs read, for UEFI and for BIOS, on the EFI system partition.
fn grub_cfg(input: &RenderInput<'_>, command_line: &str) -> String {
    let (uuid, serial) = (input.layout.root_uuid, grub_serial(command_line));
    format!(
        "set timeout=1\nset default=0\n{serial}search --no-floppy --fs-uuid --set=root {uuid}\n\
         menuentry \"{}, Linux {}\" {{\n  linux {} root=UUID={uuid} {command_line}\n  initrd {}\n}}\n",
        input.node_name, input.kernel.release, input.kernel.image, input.kernel.initramfs
    )
}

/// GRUB on the kernel's serial console. By BIOS only: UEFI firmware shows its own console there already, a BIOS need not.
fn grub_serial(command_line: &str) -> String {
    let Some((unit, speed)) = serial_console(command_line) else {
        return String::new();
    };
    format!(
        "if [ \"$grub_platform\" = pc ]; then\n  if serial --unit={unit} --speed={speed}; then\n    \
         terminal_input --append serial\n    terminal_output --append serial\n  fi\nfi\n"
    )
}

/// Number and speed of the last serial port that the kernel has a console on: `console=ttyS1,115200n8`, or without a
/// speed the kernel's 9600 (Documentation/admin-guide/serial-console.rst). Units up to 3 are at ports GRUB knows too.
fn serial_console(command_line: &str) -> Option<(u32, u32)> {
    let console = |word: &str| {
        let port = word.strip_prefix("console=ttyS")?;
        let (unit, options) = port.split_once(',').unwrap_or((port, "9600"));
        let speed = options.split(|c: char| !c.is_ascii_digit()).next()?;
        let (unit, speed) = (unit.parse().ok()?, speed.parse().ok()?);
        (unit <= 3 && speed > 0).then_some((unit, speed))
    };
    command_line.split_whitespace().rev().find_map(console)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            release: "6.1.0-1-cloud-amd64".into(),
            image: "/boot/vmlinuz-6.1.0-1-cloud-amd64".parse().unwrap(),
            initramfs: "/boot/initrd.img-6.1.0-1-cloud-amd64".parse().unwrap(),
            command_line: "console=ttyS0 ro".into(),
        }
    }

    fn layout() -> Layout {
        Layout {
            esp_mib: 256,
            esp_volume_id: "1A2B3C4D".into(),
            esp_label: "PL12AB34CD".to_owned(),
            root_uuid: "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap(),
        }
    }

    fn rendered(change: impl FnOnce(&mut RenderInput<'_>)) -> Overlay {
        let (kernel, layout) = (kernel(), layout());
        let keys = ["ssh-ed25519 AAAA admin".to_owned()];
        let mut input = RenderInput {
            node_name: "gpu-001",
            machine_id: "0123456789abcdef0123456789abcdef",
            boot_mac: "52:54:00:aa:00:01",
            domain: Some("example.org"),
            dns: &[Ipv4Addr::new(10, 77, 0, 1)],
            authorized_keys: &keys,
            ssh_host_keys: &["ssh-ed25519 BBBB".to_owned()],
            layout: &layout,
            kernel: &kernel,
            kernel_arguments: "nosmt",
            agents_url: "https://10.77.0.1:8443",
            ca_certificate: "PEM",
            image_key: "RWI",
            agent_release_key: "RWA",
            job_key: "RWJ",
            scan_interval_secs: 3600,
            mtime: 1_700_000_000,
        };
        change(&mut input);
        overlay(&input).unwrap()
    }

    fn text(overlay: &Overlay, path: &str) -> String {
        let manifest = Manifest::decode(overlay.manifest.as_bytes()).unwrap();
        match &manifest.get(&path.parse().unwrap()).unwrap().kind {
            EntryKind::File(Some(content)) => String::from_utf8(overlay.files[&content.digest].clone()).unwrap(),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn the_same_node_renders_the_same_bytes() {
        assert_eq!(rendered(|_| {}).digest, rendered(|_| {}).digest);
        assert_ne!(
            rendered(|_| {}).digest,
            rendered(|input| input.node_name = "gpu-002").digest
        );
    }

    #[test]
    fn the_loader_and_fstab_name_the_filesystems_that_are_made() {
        let overlay = rendered(|_| {});
        assert_eq!(
            text(&overlay, "/etc/fstab"),
            "UUID=01234567-89ab-cdef-0123-456789abcdef / ext4 defaults,errors=remount-ro 0 1\n\
             UUID=1A2B-3C4D /boot/efi vfat umask=0077 0 2\n"
        );
        let grub = text(&overlay, "/boot/efi/EFI/debian/grub.cfg");
        assert!(
            grub.contains("search --no-floppy --fs-uuid --set=root 01234567-89ab-cdef-0123-456789abcdef"),
            "{grub}"
        );
        assert!(
            grub.contains(
                "linux /boot/vmlinuz-6.1.0-1-cloud-amd64 root=UUID=01234567-89ab-cdef-0123-456789abcdef console=ttyS0 ro nosmt\n"
            ),
            "{grub}"
        );
    }

    #[test]
    fn grub_for_bios_speaks_on_the_kernels_serial_console() {
        let with = |arguments| {
            let overlay = rendered(|input| input.kernel_arguments = arguments);
            text(&overlay, "/boot/efi/EFI/debian/grub.cfg")
        };
        let grub = with("console=tty0 console=ttyS1,57600n8 quiet");
        let expected = "set timeout=1\nset default=0\nif [ \"$grub_platform\" = pc ]; then\n  \
                        if serial --unit=1 --speed=57600; then\n    terminal_input --append serial\n    \
                        terminal_output --append serial\n  fi\nfi\nsearch ";
        assert!(grub.starts_with(expected), "{grub}");
        assert_eq!(serial_console("console=ttyS0 ro"), Some((0, 9600)));
        assert_eq!(
            serial_console("console=ttyS2,9600 console=ttyS9,115200"),
            Some((2, 9600))
        );
        for none in [
            "",
            "console=tty0 ro",
            "console=ttyS,9600",
            "console=ttyS0,x",
            "console=ttyS0,0",
            "xconsole=ttyS0",
        ] {
            assert_eq!(serial_console(none), None, "{none}");
        }
    }

    #[test]
    fn private_keys_are_named_and_never_sent() {
        let overlay = rendered(|_| {});
        let manifest = Manifest::decode(overlay.manifest.as_bytes()).unwrap();
        for path in [
            "/etc/ssh/ssh_host_ed25519_key",
            "/var/lib/plumbline/identity/key.pem",
            "/var/lib/plumbline/identity/certificate.pem",
        ] {
            let entry = manifest.get(&path.parse().unwrap()).unwrap();
            assert_eq!(
                (&entry.kind, entry.class),
                (&EntryKind::File(None), PathClass::Seeded),
                "{path}"
            );
        }
    }

    #[test]
    fn the_agents_configuration_is_toml() {
        let overlay = rendered(|_| {});
        let parsed: toml::Table = text(&overlay, "/etc/plumbline/agent.toml").parse().unwrap();
        assert_eq!(parsed["server"].as_str(), Some("https://10.77.0.1:8443"));
    }
}
