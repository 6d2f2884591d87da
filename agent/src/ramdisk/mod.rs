//! The deployer ramdisk: from a kernel with nothing to a machine that the server can tell what to do.
//!
//! Idea: a straight story (drivers, network, clock, claim, inventory, tasks) told on the console as it happens: what is
//! done, what is waited for, and why. Every end is a named state that a person can read for a minute before the machine
//! restarts; nothing loops in silence and nothing hammers the server.
//!
//! Invariant: nothing on any disk is touched before the server has answered a claim and sent a deployment.

mod backoff;
mod burn_in;
mod claim;
mod clock;
mod command_line;
mod console;
pub mod inventory;
mod lease;
pub mod lldp;
mod modules;
mod mounts;
mod network;
mod rescue;
mod supervise;
mod tasks;

use std::path::Path;
use std::time::Duration;

use protocol::latest::{Authority, Inventory, LldpListening, paths};

use crate::api::{Api, ApiError};
use crate::deploy::{Context, chain};
use command_line::{CommandLine, LeaseWanted};
use lease::Lease;
use modules::Coldplug;
use tasks::End;

pub use backoff::Backoff;
pub use claim::{Claimed, claim};
pub use console::Console;
pub use supervise::run;
pub use tasks::{next_task, tell_outcome};

/// Put there by a second initrd that the boot plane adds.
const AUTHORITY: &str = "/etc/plumbline/authority.json";
/// Largest authority file, in bytes.
const AUTHORITY_BYTES_MAX: u64 = 256 << 10;

/// The reason the deployer cannot go on: a heading and its explanation.
struct Stop {
    title: &'static str,
    reason: String,
}

fn stop(title: &'static str, reason: impl Into<String>) -> Stop {
    Stop {
        title,
        reason: reason.into(),
    }
}

/// The worker under process 1. On a machine that is not in the deployer ramdisk it refuses.
///
/// # Errors
/// When it was not started by process 1 of the ramdisk; in the ramdisk it ends with a restart.
pub async fn work() -> anyhow::Result<()> {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let parent_program = std::fs::read_link("/proc/1/exe").ok();
    if parent != Some(1) || parent_program != std::fs::read_link("/proc/self/exe").ok() {
        anyhow::bail!("this command belongs to the deployer ramdisk; its process 1 starts it");
    }
    let console = Console::of_machine();
    match Box::pin(story(&console)).await {
        Ok(End::Installed) => console.stage("restarting into the installed system"),
        Ok(End::Asked(reason)) => console.stage(format!("restarting: {reason}")),
        Ok(End::Stuck(reason)) => wait_for_reader(&console, "CANNOT GO ON", &reason).await,
        Err(stop) => wait_for_reader(&console, stop.title, &stop.reason).await,
    }
    console.flush(Duration::from_secs(2));
    supervise::restart();
    anyhow::bail!("the machine did not restart")
}

async fn wait_for_reader(console: &Console, title: &str, reason: &str) {
    console.alarm(title, &[reason, "", "The machine restarts in 60 seconds."]);
    tokio::time::sleep(supervise::READING_TIME).await;
}

async fn story(console: &Console) -> Result<End, Stop> {
    let options = CommandLine::parse(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
    let authority = read_authority(Path::new(AUTHORITY)).map_err(|why| stop("NO AUTHORITY FILE", why))?;
    let (Some(token), Some(mac)) = (options.token, options.boot_mac) else {
        let reason = "The kernel command line lacks plumbline.token= or BOOTIF=. Boot through the appliance's script.";
        return Err(stop("NOT STARTED BY THE BOOT PLANE", reason));
    };

    console.stage("loading drivers");
    let mut lease = {
        let (console, mac, wanted) = (console.clone(), mac.clone(), options.lease);
        blocking(move || connect(&mac, wanted, &console)).await?
    };

    console.stage(format!("asking {} who this machine is", authority.boot_url));
    let boot = Api::plain(&authority.boot_url).map_err(|e| stop("NO HTTP CLIENT", chain(&e)))?;
    set_clock(&boot, console).await;
    let Claimed { api, reply } = claim(&authority, &token, &mac, console)
        .await
        .map_err(|error| refused(&error))?;
    console.say(format!(
        "this machine is {}",
        reply.node_name.as_deref().unwrap_or("known, and has no name yet")
    ));

    let mut inventory = {
        let mac = mac.clone();
        blocking(move || Ok(inventory::read(Path::new("/"), Some(&mac)))).await?
    };
    inventory.lldp = LldpListening::Listening;
    send_inventory(&api, &inventory, console)
        .await
        .map_err(|error| refused(&error))?;

    // After the first inventory, so that the one that knows more is the last.
    let ports = tokio::spawn(ports(api.clone(), mac.clone(), console.clone()));

    console.stage("ready; the server decides what happens next");
    let context = Context {
        api,
        images: boot,
        authority,
        boot_mac: mac,
        console: console.clone(),
    };
    Ok(tasks::run(&context, &mut lease, ports).await)
}

/// Listens for switches and sends a second inventory with what they said. Whatever goes wrong here is told in it, and
/// stops nothing.
async fn ports(api: Api, mac: String, console: Console) {
    let inventory = blocking(move || {
        let read = || inventory::read(Path::new("/"), Some(&mac));
        Ok(match lldp::Opened::all(Path::new("/")) {
            Ok(opened) => {
                let (heard, took) = opened.listen(lldp::LIMIT);
                // While the interfaces are up: those without a cable are told from those that were only down.
                let mut inventory = read();
                lldp::add(&mut inventory, &heard, took);
                inventory
            }
            Err(reason) => Inventory {
                lldp: LldpListening::Failed { reason },
                ..read()
            },
        })
    })
    .await;
    let Ok(inventory) = inventory else { return };
    for nic in &inventory.nics {
        if let Some(neighbour) = &nic.lldp {
            console.say(format!("{} is plugged into {}", nic.name, neighbour.switch_port()));
        }
    }
    if let Err(error) = send_inventory(&api, &inventory, &console).await {
        console.say(format!("the switch ports were not told: {}", chain(&error)));
    }
}

/// Drivers, the boot interface, its lease. Blocks.
fn connect(mac: &str, wanted: LeaseWanted, console: &Console) -> Result<Lease, Stop> {
    let mut coldplug = Coldplug::default();
    coldplug.always();
    coldplug.settle(Duration::from_millis(600), Duration::from_secs(20));
    console.stage("starting the network");
    let interface = network::interface(mac, &mut coldplug, console).map_err(|why| stop("NO NETWORK INTERFACE", why))?;
    console.say(format!("{interface} ({mac}): asking for an address"));
    let lease = Lease::first(&interface, wanted, console).map_err(|why| stop("NO NETWORK", why))?;
    console.say(format!("{interface}: address {}", Lease::address()));
    // Disks behind slow controllers have had this long to appear.
    coldplug.settle(Duration::from_millis(600), Duration::from_secs(20));
    Ok(lease)
}

/// A claim or inventory the server turned down.
fn refused(error: &ApiError) -> Stop {
    match error {
        ApiError::Refused { status, message, .. } => stop(
            "THE SERVER REFUSED THIS MACHINE",
            format!("{message} (status {status}). Look at the machine's record in Plumbline."),
        ),
        other => stop("NO TRUSTED CONNECTION", chain(other)),
    }
}

async fn set_clock(boot: &Api, console: &Console) {
    let mut backoff = Backoff::default();
    loop {
        match clock::synchronise(boot).await {
            Ok(None) => return,
            Ok(Some(off_ms)) => {
                console.say(format!("the clock was off by {} s and is set", off_ms / 1_000));
                return;
            }
            Err(error) if error.is_temporary() => {
                console.say(format!(
                    "asking the server for the time: {}; trying again",
                    chain(&error)
                ));
                tokio::time::sleep(backoff.pause()).await;
            }
            // Without the time the handshake may fail, and will say so.
            Err(error) => {
                console.say(format!("the server does not tell the time: {}", chain(&error)));
                return;
            }
        }
    }
}

/// Sends the inventory, waiting for a server that is away; what was found is told on the console.
///
/// # Errors
/// The server's refusal.
pub async fn send_inventory(api: &Api, inventory: &Inventory, console: &Console) -> Result<(), ApiError> {
    let mut backoff = Backoff::default();
    console.say(format!(
        "{} processors, {} MB of memory, {} disks, {} network interfaces, {} PCI functions",
        inventory.cpu.threads,
        inventory.memory_bytes / 1_000_000,
        inventory.disks.len(),
        inventory.nics.len(),
        inventory.pci.len()
    ));
    loop {
        match api.send(paths::INVENTORY, inventory).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_temporary() => {
                console.say(format!("sending the inventory: {}; trying again", chain(&error)));
                tokio::time::sleep(backoff.pause()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn read_authority(path: &Path) -> Result<Authority, String> {
    use std::io::Read;
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| wrong(&e))?;
    file.take(AUTHORITY_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| wrong(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| wrong(&e))
}

/// Runs blocking work off the runtime's thread; a panic in it is a reason to stop.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Stop> + Send + 'static) -> Result<T, Stop> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(stop("THE DEPLOYER IS BROKEN", error.to_string())))
}
