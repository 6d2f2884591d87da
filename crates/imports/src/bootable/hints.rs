//! What to add, by distribution.

use super::Family;

/// What is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Kernel,
    Modules,
    Initramfs,
    Init,
    SshServer,
    Network,
}

/// The command that brings it.
pub(super) fn install(family: Family, need: Need) -> String {
    let packages = |debian: &'static str, ubuntu: &'static str, redhat: &'static str| match family {
        Family::Debian => format!("apt-get install {debian}"),
        Family::Ubuntu => format!("apt-get install {ubuntu}"),
        Family::RedHat => format!("dnf install {redhat}"),
        Family::Other => format!("install {debian} (Debian), {ubuntu} (Ubuntu) or {redhat} (Rocky, RHEL)"),
    };
    match need {
        Need::Kernel => packages("linux-image-amd64", "linux-image-generic", "kernel"),
        Need::Modules => packages(
            "linux-image-amd64",
            "linux-image-generic linux-modules-extra-generic",
            "kernel-modules kernel-modules-core",
        ),
        Need::Initramfs => packages("initramfs-tools zstd", "initramfs-tools zstd", "dracut"),
        Need::Init => packages("systemd-sysv udev", "systemd-sysv udev", "systemd systemd-udev"),
        Need::SshServer => packages("openssh-server", "openssh-server", "openssh-server"),
        Need::Network => packages("systemd", "systemd", "NetworkManager"),
    }
}
