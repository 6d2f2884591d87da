//! A subnet behind a router with a DHCP relay: the real `dhcrelay`, which adds relay agent information (RFC 3046).

use super::BootKind;
use super::run::Run;
use crate::command::run_checked;
use crate::environment::LabEnvironment;
use crate::netns::{BRIDGE, BRIDGE_ADDRESS, NetworkNamespace, UPLINK};
use crate::process::Supervised;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The network behind the relay.
pub(super) const NETWORK: &str = "10.78.0.0/24";
/// The relay's addresses in it and on the appliance's wire.
const INSIDE: &str = "10.78.0.1";
const OUTSIDE: &str = "10.77.0.2";
/// What the appliance's configuration says of it.
pub(super) const SUBNET: &str = "[[boot.subnets]]\nnetwork = \"10.78.0.0/24\"\nrouter = \"10.78.0.1\"\n\
                                 pool_first = \"10.78.0.100\"\npool_last = \"10.78.0.199\"\n";
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
const START_LIMIT: Duration = Duration::from_secs(20);

/// A router with a relay, and the wire behind it.
#[derive(Debug)]
pub(super) struct Relay {
    /// Dropped before its namespace.
    _agent: Supervised,
    host: NetworkNamespace,
}

impl Relay {
    pub(super) fn start(environment: &LabEnvironment, rack: &NetworkNamespace, folder: &Path) -> Result<Self> {
        let host = rack.add_host("relay", &format!("{OUTSIDE}/24"))?;
        host.add_bridge(&format!("{INSIDE}/24"))?;
        rack.add_route(NETWORK, OUTSIDE)?;
        let mut forward = host.command("sysctl");
        forward.args(["-q", "-w", "net.ipv4.ip_forward=1"]);
        run_checked(&mut forward, COMMAND_LIMIT)?;
        let mut command = host.command(environment.relay());
        // -a: adds option 82; -d: in the foreground.
        command.args(["-4", "-d", "-a", "-id", BRIDGE, "-iu", UPLINK]);
        command.arg(BRIDGE_ADDRESS.to_string());
        let mut agent = Supervised::spawn("dhcrelay", command, &folder.join("relay.log"))?;
        agent.wait_line("Sending on", START_LIMIT)?;
        Ok(Self { _agent: agent, host })
    }

    /// The namespace with the wire behind it.
    pub(super) fn namespace(&self) -> &NetworkNamespace {
        &self.host
    }
}

/// The `relay` scenario.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let site = super::run::Site {
        is_relayed: true,
        ..Default::default()
    };
    let mut run = Run::start_at(environment, "relay", kind, &site)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let node = run.record()?;
    let address = node["address"].as_str().unwrap_or_default().to_owned();
    ensure!(
        address.starts_with("10.78.0."),
        "an address of the subnet behind the relay: {address}"
    );
    // Over SSH, through the router, with the published host key: the installed system got its address the same way.
    run.ssh_target()?;
    let outcome = json!({
        "scenario": "relay", "ok": true, "firmware": kind, "address": address, "router": INSIDE,
        "deploy_s": run.deploy_secs.round(), "verdict": drift["verdict"],
    });
    run.stop()?;
    Ok(outcome)
}
