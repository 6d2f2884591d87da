//! iPXE's scripts (ipxe.org/scripting).

use std::fmt::Write as _;

use super::{ATTEMPTS, Checked, HOLD_SECS};

/// Leaves iPXE so that the firmware takes the next boot device. BIOS firmware often starts over with the network
/// instead, so there the first disk is started from here.
const LEAVE: &str = "iseq ${platform} efi && exit 1 ||\nsanboot --no-describe --drive 0x80 || exit 1\n";

pub(super) fn boot_local(said: &str, label: &str) -> String {
    format!(
        "#!ipxe\necho {said}\nsleep 2\n\
         iseq ${{platform}} efi && sanboot --no-describe --drive 0 --label {label} ||\n{LEAVE}"
    )
}

pub(super) fn refuse(said: &str) -> String {
    format!("#!ipxe\necho {said}\nsleep 10\n{LEAVE}")
}

/// Fetched again, the script takes this one's place: nothing piles up while a machine is held.
pub(super) fn hold(said: &str, url: &str) -> String {
    format!("#!ipxe\necho {said}\nsleep {HOLD_SECS}\nchain --replace --autofree {url} || reboot\n")
}

pub(super) fn deployer(boot: &Checked) -> String {
    let Checked { base, title, .. } = boot;
    // UEFI kernels find their initrds by these names; BIOS kernels ignore the words and take what was loaded.
    let names: Vec<String> = (0..boot.initrds.len()).map(|index| format!("initrd{index}")).collect();
    let words: Vec<String> = names.iter().map(|name| format!("initrd={name}")).collect();
    let mut script = format!("#!ipxe\necho Plumbline: {title}\n");
    // Of BIOS loaders most are 32-bit programs on the same machines.
    if boot.script_url.is_some() {
        script.push_str("iseq ${buildarch} x86_64 || iseq ${buildarch} i386 || goto other_architecture\n");
    }
    script.push_str("set attempt:int32 0\n:again\nimgfree\n");
    let kernel_words = [words.join(" "), boot.command_line.clone()].join(" ");
    let kernel_line = format!("kernel --name kernel {base}{} {kernel_words}", boot.kernel);
    let _ = writeln!(script, "{} || goto failed", kernel_line.trim_end());
    for (name, path) in names.iter().zip(&boot.initrds) {
        let _ = writeln!(script, "initrd --name {name} {base}{path} || goto failed");
    }
    let _ = write!(
        script,
        "boot || goto failed\n\
         :failed\n\
         inc attempt\n\
         iseq ${{attempt}} {ATTEMPTS} && goto give_up ||\n\
         echo Plumbline: the deployer did not load from {base} (attempt ${{attempt}} of {ATTEMPTS}); trying again in 10 seconds\n\
         sleep 10\n\
         goto again\n\
         :give_up\n\
         echo Plumbline: the deployer did not load from {base} in {ATTEMPTS} attempts; rebooting in 30 seconds\n\
         sleep 30\n\
         reboot\n"
    );
    if let Some(url) = &boot.script_url {
        // The server knows whether there is something for it, and says what there is to say.
        let _ = write!(
            script,
            ":other_architecture\n\
             chain --replace --autofree {url}&buildarch=${{buildarch}} ||\n\
             echo Plumbline: no answer from {base} for architecture ${{buildarch}}\n\
             sleep 30\n\
             reboot\n"
        );
    }
    script
}
