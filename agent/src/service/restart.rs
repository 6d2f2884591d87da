//! Restarting the machine into the network, as the server asks.
//!
//! Each order is carried out once: its id is written down before the restart, so that a machine which comes back from its
//! disk says so and is not restarted again and again.

use std::path::Path;
use std::time::Duration;

use protocol::latest::{RestartAnswer, RestartOrder};
use uuid::Uuid;

use crate::deploy::program::run_ok;
use crate::node::boot_next;

const VARIABLES: &str = "/sys/firmware/efi/efivars";
const REBOOT_LIMIT: Duration = Duration::from_secs(30);

/// Prepares the restart and says what will come of it. `done` is the order that was carried out last.
pub(super) fn prepare(order: &RestartOrder, done: Option<Uuid>, is_machine: bool) -> RestartAnswer {
    let answer = |will_restart, detail: String| RestartAnswer {
        id: order.id,
        will_restart,
        detail,
    };
    if done == Some(order.id) {
        let detail = "it was restarted for this, and came back from its disk: firmware did not take the network";
        return answer(false, detail.to_owned());
    }
    if !is_machine {
        return answer(false, "this agent looks after a folder, not after a machine".to_owned());
    }
    match choose_network(
        Path::new(VARIABLES),
        order.boot_mac.as_deref(),
        &interfaces(Path::new("/")),
    ) {
        Ok(detail) => answer(true, detail),
        Err(detail) => answer(false, detail),
    }
}

/// Has firmware start from the network next; says how.
fn choose_network(variables: &Path, boot_mac: Option<&str>, interfaces: &[String]) -> Result<String, String> {
    if !variables.exists() {
        return Ok(
            "restarting; by BIOS the boot order decides, and the network has to come before the disk".to_owned(),
        );
    }
    let (entries, order) =
        boot_next::read(variables).map_err(|error| format!("the firmware's boot entries cannot be read: {error}"))?;
    let macs: Vec<String> = boot_mac
        .map(str::to_owned)
        .into_iter()
        .chain(interfaces.iter().cloned())
        .collect();
    let Some(entry) = boot_next::choose(&entries, &order, &macs) else {
        let names: Vec<&str> = entries.iter().map(|entry| entry.description.as_str()).collect();
        return Err(format!(
            "no boot entry of the firmware starts from a network interface of this machine; there is {}",
            if names.is_empty() {
                "none at all".to_owned()
            } else {
                names.join(", ")
            }
        ));
    };
    boot_next::set(variables, entry.number)
        .map_err(|error| format!("the firmware's next boot entry cannot be set: {error}"))?;
    Ok(format!(
        "restarting into Boot{:04X}, {}",
        entry.number, entry.description
    ))
}

/// MACs of the machine's own interfaces.
fn interfaces(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(root.join("sys/class/net"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            folder.join("device").exists().then_some(())?;
            Some(
                std::fs::read_to_string(folder.join("address"))
                    .ok()?
                    .trim()
                    .to_lowercase(),
            )
        })
        .collect();
    found.sort();
    found
}

/// Restarts the machine in good order: its jobs and services are ended by systemd. Blocks.
///
/// # Errors
/// When systemd does not take it.
pub(super) fn restart() -> Result<(), String> {
    run_ok("systemctl", &["reboot"], REBOOT_LIMIT)
        .map(drop)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> RestartOrder {
        RestartOrder {
            id: Uuid::from_u128(7),
            boot_mac: Some("52:54:00:77:00:01".to_owned()),
        }
    }

    #[test]
    fn an_order_is_carried_out_once_and_only_on_a_machine() {
        let again = prepare(&order(), Some(order().id), true);
        assert!(
            !again.will_restart && again.detail.contains("came back from its disk"),
            "{again:?}"
        );
        let simulated = prepare(&order(), None, false);
        assert!(
            !simulated.will_restart && simulated.detail.contains("folder"),
            "{simulated:?}"
        );
    }

    #[test]
    fn without_an_entry_for_the_network_nothing_is_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let refused = choose_network(folder.path(), None, &["52:54:00:77:00:01".to_owned()]).unwrap_err();
        assert!(refused.contains("none at all"), "{refused}");
        let bios = choose_network(&folder.path().join("absent"), None, &[]).unwrap();
        assert!(bios.contains("boot order decides"), "{bios}");
    }
}
