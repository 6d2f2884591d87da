//! A kernel module that Debian did not sign: built by DKMS while the image is, signed with the site's key, refused by a
//! machine that was not told of the key, and loaded by one that was.

use super::images::OsImage;
use super::run::{Run, Site};
use super::{BootKind, recipes, step};
use crate::environment::LabEnvironment;
use crate::ssh::SshTarget;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// From the restart to MokManager's first word.
const MOK_MANAGER_LIMIT: Duration = Duration::from_secs(300);
/// Between two of its screens.
const SCREEN_LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "lab";

const RECIPE: &str = "kind: os
name: lab-module
extends: debian-12-lab
packages: [dkms, gcc, libc6-dev, linux-headers-cloud-amd64, make, mokutil]
hooks: [build.sh]
";
const HOOK: &str = "#!/bin/sh
set -e
for headers in /usr/lib/modules/*/build; do
    dkms install lab-module/1.0 -k \"$(basename \"${headers%/build}\")\"
done
";
const DKMS: &str = "PACKAGE_NAME=\"lab-module\"
PACKAGE_VERSION=\"1.0\"
BUILT_MODULE_NAME[0]=\"lab_module\"
DEST_MODULE_LOCATION[0]=\"/updates/dkms\"
MAKE[0]=\"make -C ${kernel_source_dir} M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build\"
CLEAN=\"make -C ${kernel_source_dir} M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build clean\"
AUTOINSTALL=\"yes\"
";
const SOURCE: &str = "#include <linux/module.h>
static int __init lab_module_init(void) { pr_info(\"lab_module: loaded\\n\"); return 0; }
static void __exit lab_module_exit(void) { }
module_init(lab_module_init);
module_exit(lab_module_exit);
MODULE_LICENSE(\"GPL\");
MODULE_DESCRIPTION(\"Says that it was loaded\");
";

/// What a technician does at MokManager: the word that a screen is known by, and the keys that lead on.
const SCREENS: [(&str, &[&str]); 5] = [
    ("Press any key", &["ret"]),
    ("Enroll MOK", &["down", "ret"]),
    ("View key 0", &["down", "ret"]),
    ("Enroll the key", &["down", "ret"]),
    ("Password", &["l", "a", "b", "ret"]),
];

/// The `module-signing` scenario.
pub(super) fn play(environment: &LabEnvironment) -> Result<Value> {
    let recipe = recipes::write(
        environment,
        "lab-module",
        &[
            ("image.yaml", RECIPE),
            ("build.sh", HOOK),
            ("files/usr/src/lab-module-1.0/dkms.conf", DKMS),
            ("files/usr/src/lab-module-1.0/lab_module.c", SOURCE),
            ("files/usr/src/lab-module-1.0/Makefile", "obj-m := lab_module.o\n"),
        ],
    )?;
    let site = Site {
        os: OsImage {
            recipe,
            ..OsImage::default()
        },
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "modules", BootKind::SecureBoot, &site)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let ssh = run.ssh_target()?;
    let lockdown = run.lockdown(&ssh)?;
    let refused = on_node(&run, &ssh, "modprobe lab_module 2>&1 || true")?;
    ensure!(
        refused.contains("Key was rejected by service"),
        "a module of a key that nobody enrolled: {refused}"
    );
    step("refused while the machine does not know the key; now it is told");
    on_node(
        &run,
        &ssh,
        &format!(
            "mokutil --generate-hash={PASSWORD} > /run/hash && \
             mokutil --import /usr/share/plumbline/module-signing.der --hash-file /run/hash"
        ),
    )?;
    let boot_before = run.drift()?["report"]["boot_id"].clone();
    // The connection ends with the machine, so the status says nothing.
    let _ended = ssh.run(run.appliance.namespace(), "systemctl reboot", COMMAND_LIMIT)?;
    enrol(&mut run)?;
    run.wait_scan_of_another_boot(&boot_before)?;
    let loaded = on_node(
        &run,
        &ssh,
        "modprobe lab_module && grep -c '^lab_module ' /proc/modules",
    )?;
    ensure!(loaded == "1", "the module should be loaded: {loaded}");
    let signer = on_node(&run, &ssh, "modinfo -F signer lab_module")?;
    let altered = "cp /usr/lib/modules/*/updates/dkms/lab_module.ko /run/altered.ko && rmmod lab_module && \
                   printf X | dd of=/run/altered.ko bs=1 seek=4096 conv=notrunc status=none && insmod /run/altered.ko 2>&1 || true";
    let altered = on_node(&run, &ssh, altered)?;
    ensure!(
        altered.contains("Key was rejected by service"),
        "a module that was altered after signing: {altered}"
    );
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    run.stop()?;
    Ok(json!({
        "scenario": "module-signing", "ok": true, "firmware": BootKind::SecureBoot, "lockdown": lockdown,
        "before_enrolment": refused, "after_enrolment": "loaded", "signer": signer, "altered": altered,
        "verdict": drift["verdict"],
    }))
}

/// Goes through MokManager on the console.
fn enrol(run: &mut Run) -> Result<()> {
    let mut from = run.machine.serial_size_bytes();
    let mut limit = MOK_MANAGER_LIMIT;
    for (word, keys) in SCREENS {
        run.machine.wait_serial_from(from, word, limit)?;
        from = run.machine.serial_size_bytes();
        limit = SCREEN_LIMIT;
        press(run, keys)?;
    }
    // The way out is the first entry of the menu that comes back.
    run.machine.wait_serial_from(from, "Reboot", SCREEN_LIMIT)?;
    press(run, &["ret"])?;
    step("the key is enrolled");
    Ok(())
}

fn press(run: &Run, keys: &[&str]) -> Result<()> {
    for key in keys {
        // A screen is drawn before its keyboard is asked.
        std::thread::sleep(Duration::from_secs(1));
        let key = json!({ "keys": [{ "type": "qcode", "data": key }] });
        run.machine.qmp("send-key", Some(key))?;
    }
    Ok(())
}

/// What a command on the node says, which must end well.
fn on_node(run: &Run, ssh: &SshTarget, command: &str) -> Result<String> {
    let said = ssh.run(run.appliance.namespace(), command, COMMAND_LIMIT)?;
    ensure!(said.status.success(), "{command}: {said:?}");
    Ok(said.stdout.trim().to_owned())
}
