//! Nodes, their events and their deployments.

use lifecycle::burn_in::Standing;
use lifecycle::placement::MismatchKind;
use protocol::latest::{DeployMode, Disk, Inventory, LldpListening, Nic, Outcome};

use super::burn_ins::word;
use crate::cli::sizes::size_text;
use crate::cli::table::{pairs, table};
use crate::cli::text::{Context, cell};
use crate::cli::views::{Deployment, Event, Node, Why};

/// All nodes, a line each.
#[must_use]
pub fn nodes(nodes: &[Node], context: &Context) -> String {
    if nodes.is_empty() {
        return "no nodes: `plumbline node add NAME MAC` lists one, `plumbline discovery arm SUBNET` finds them\n"
            .into();
    }
    let heading = ["NODE", "STATE", "SINCE", "PLAN", "DRIFT", "AGENT", "REASON"];
    let rows = nodes.iter().map(|node| {
        [
            node.reference().to_owned(),
            state(node),
            context.age(node.state_since),
            plan(node),
            drift(node),
            context.age_or_never(node.agent.as_ref().map(|agent| agent.heartbeat_at)),
            reason(node),
        ]
    });
    table(context, heading, rows)
}

/// One node, in full.
#[must_use]
pub fn node(node: &Node, context: &Context) -> String {
    let mut rows = vec![
        ("name", node.name.clone().unwrap_or_else(|| "-".to_owned())),
        ("id", node.id.clone()),
        ("state", state(node)),
        ("since", context.age_and_local(node.state_since)),
        ("reason", node.state_reason.clone()),
        ("drift", format!("{}: {}", node.drift, node.drift_reason)),
        (
            "last complete scan",
            node.scanned_at
                .map_or_else(|| "never".to_owned(), |at| context.age_and_local(at)),
        ),
        ("group", node.group.clone()),
        ("rack", place(node.rack.as_deref(), node.unit)),
        ("plan", plan_text(node)),
        ("burn-in", burn_in(node)),
        ("boot chain", node.chain.clone()),
        ("MACs", node.macs.join(", ")),
        ("address", address(node)),
        ("machine id", node.machine_id.clone()),
    ];
    let problems = node.mismatches.iter();
    rows.extend(problems.map(|problem| ("plan and reality", format!("{}: {}", problem.kind, problem.detail))));
    rows.extend(evidence(node));
    if let Some(hold) = &node.hold {
        let since = context.age(hold.since);
        rows.push(("held", format!("{} ({}, {since})", hold.reason, hold.by)));
    }
    rows.extend(node.ssh_host_keys.iter().map(|key| ("SSH host key", key.clone())));
    match &node.agent {
        None => rows.push(("agent", "never heard".to_owned())),
        Some(agent) => rows.extend([
            ("agent", format!("version {}", agent.agent_version)),
            ("heard", context.age_and_local(agent.heartbeat_at)),
            ("boot", agent.boot_id.clone()),
            ("agent memory", format!("at most {}", size_text(agent.rss_max_bytes))),
            ("clock", format!("{:+} ms from the server's", agent.clock_skew_ms)),
        ]),
    }
    match &node.inventory {
        None => rows.push(("hardware", "not inventoried".to_owned())),
        Some(inventory) => hardware(inventory, &mut rows),
    }
    pairs(context, rows)
}

/// Why it is in its state; of one that waits for approval also what holds it back.
fn reason(node: &Node) -> String {
    let holds_back = matches!(node.burn_in, Some(Standing::Running | Standing::Failed));
    match (&node.burn_in, node.state == "waiting_approval" && holds_back) {
        (Some(standing), true) => format!("burn-in {}: {}", word(*standing), node.burn_in_reason),
        _ => node.state_reason.clone(),
    }
}

fn address(node: &Node) -> String {
    match (&node.address, &node.fixed_address) {
        (Some(has), Some(fixed)) if has == fixed => format!("{has} (fixed)"),
        (Some(has), Some(fixed)) => format!("{has}; from its next start {fixed} (fixed)"),
        (None, Some(fixed)) => format!("{fixed} (fixed)"),
        (Some(has), None) => has.clone(),
        (None, None) => "-".to_owned(),
    }
}

fn burn_in(node: &Node) -> String {
    match node.burn_in {
        None | Some(Standing::None) => "none".to_owned(),
        Some(Standing::Passed) => "passed".to_owned(),
        Some(standing) => format!("{}: {}", word(standing), node.burn_in_reason),
    }
}

fn place(rack: Option<&str>, unit: Option<i32>) -> String {
    match (rack, unit) {
        (Some(rack), Some(unit)) => format!("{rack} unit {unit}"),
        (Some(rack), None) => rack.to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// Whether it is what the rack plan says, in a word.
fn plan(node: &Node) -> String {
    let problems = node
        .mismatches
        .iter()
        .filter(|one| one.kind != MismatchKind::SharedMac.as_str());
    let mut kinds: Vec<&str> = problems.map(|one| one.kind.as_str()).collect();
    kinds.dedup();
    match (kinds.is_empty(), &node.plan, &node.inventory) {
        (false, ..) => kinds.join(", "),
        (true, None, _) => "-".to_owned(),
        // Nothing was seen of it: that is not "as planned".
        (true, Some(_), None) => "not seen".to_owned(),
        (true, Some(_), Some(_)) => "as planned".to_owned(),
    }
}

fn plan_text(node: &Node) -> String {
    let Some(line) = &node.plan else {
        return "not in the rack plan".to_owned();
    };
    let mut text = place(line.rack.as_deref(), line.unit);
    for (what, value) in [
        ("serial", &line.serial),
        ("MAC", &line.mac),
        ("BMC", &line.bmc_address),
        ("switch port", &line.switch_port),
    ] {
        if let Some(value) = value {
            text.push_str(&format!(", {what} {value}"));
        }
    }
    text
}

/// What tells where a machine is, beside its hardware.
fn evidence(node: &Node) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(relay) = &node.relay {
        rows.push(("relay", relay.clone()));
    }
    match (&node.relay_circuit, &node.relay_remote) {
        (Some(circuit), Some(remote)) => rows.push(("relay circuit", format!("{circuit}, of {remote}"))),
        (Some(circuit), None) => rows.push(("relay circuit", circuit.clone())),
        (None, Some(remote)) => rows.push(("relay circuit", format!("not named, of {remote}"))),
        (None, None) => {}
    }
    if let Some(rule) = &node.discovery_rule {
        rows.push(("discovery rule", rule.clone()));
    }
    if let Some(image) = &node.image_channel {
        rows.push(("image proposed", image.clone()));
    }
    rows
}

fn state(node: &Node) -> String {
    if node.overdue {
        format!("{} (overdue)", node.state)
    } else {
        node.state.clone()
    }
}

fn drift(node: &Node) -> String {
    match (node.drift.as_str(), node.findings) {
        ("drift", count @ 1..) => format!("drift ({count})"),
        (verdict, _) => verdict.to_owned(),
    }
}

fn hardware(inventory: &Inventory, rows: &mut Vec<(&'static str, String)>) {
    let dmi = &inventory.dmi;
    let maker: Vec<&str> = [&dmi.manufacturer, &dmi.product]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let serial = dmi
        .serial
        .as_deref()
        .map_or(String::new(), |serial| format!(", serial {serial}"));
    let cpu = &inventory.cpu;
    let model = cpu.model.as_deref().unwrap_or("unknown processor");
    let firmware = if inventory.uefi { "UEFI" } else { "BIOS" };
    let version = dmi.bios_version.as_deref().unwrap_or("of unknown version");
    rows.extend([
        ("hardware", format!("{}{serial}", maker.join(" "))),
        (
            "processors",
            format!(
                "{model}: {} sockets, {} cores, {} threads",
                cpu.sockets, cpu.cores, cpu.threads
            ),
        ),
        ("memory", size_text(inventory.memory_bytes)),
        ("firmware", format!("{firmware} {version}")),
    ]);
    rows.extend(inventory.disks.iter().map(|disk| ("disk", disk_text(disk))));
    for nic in &inventory.nics {
        rows.push(("interface", nic_text(nic)));
        rows.push(("  switch port", port_text(nic, &inventory.lldp)));
    }
    rows.push(("PCI functions", inventory.pci.len().to_string()));
    rows.extend(inventory.problems.iter().map(|problem| ("not read", problem.clone())));
}

fn disk_text(disk: &Disk) -> String {
    let mut text = format!("{}: {}", disk.name, size_text(disk.size_bytes));
    for (what, value) in [("", &disk.model), ("serial ", &disk.serial), ("WWN ", &disk.wwn)] {
        if let Some(value) = value {
            text.push_str(&format!(", {what}{value}"));
        }
    }
    if disk.rotational {
        text.push_str(", rotating");
    }
    if disk.removable {
        text.push_str(", removable");
    }
    text
}

fn nic_text(nic: &Nic) -> String {
    let mut text = format!("{}: {}", nic.name, nic.mac);
    if let Some(driver) = &nic.driver {
        text.push_str(&format!(", {driver}"));
    }
    match nic.speed_mbps {
        Some(mbps) if nic.link => text.push_str(&format!(", {mbps} Mb/s")),
        _ if nic.link => text.push_str(", link"),
        _ => text.push_str(", no link"),
    }
    if nic.boot {
        text.push_str(", booted from");
    }
    text
}

/// What the switch said of the port; what was not heard is never shown as a port without a name.
fn port_text(nic: &Nic, listening: &LldpListening) -> String {
    match (&nic.lldp, listening) {
        (Some(neighbour), _) => {
            let description = neighbour
                .port_description
                .as_deref()
                .filter(|text| *text != neighbour.port);
            let description = description.map_or_else(String::new, |text| format!(" ({text})"));
            format!("{}{description}", neighbour.switch_port())
        }
        (None, LldpListening::NotListened) => "not listened for".to_owned(),
        (None, LldpListening::Listening) => "not seen yet".to_owned(),
        (None, LldpListening::Listened { secs }) => format!("not seen in {secs} s"),
        (None, LldpListening::Failed { reason }) => format!("could not listen: {reason}"),
    }
}

/// How far a node came, what was due next, and what to try.
#[must_use]
pub fn why(why: &Why, context: &Context) -> String {
    let mut text = format!("{}\n\n", cell(&why.sentence));
    let reached = match why.reached_at {
        Some(at) => format!("{} ({})", cell(&why.reached), context.age_and_local(at)),
        None => cell(&why.reached),
    };
    text.push_str(&format!("last seen  {reached}\n"));
    if let Some(detail) = &why.detail {
        text.push_str(&format!("           {}\n", cell(detail)));
    }
    if !why.expected.is_empty() {
        text.push_str(&format!("due next   {}\n", cell(&why.expected)));
    }
    if !why.advice.is_empty() {
        text.push_str(match why.is_stuck {
            true => "\nTry, likeliest first:\n",
            false => "\nNext:\n",
        });
        for line in &why.advice {
            text.push_str(&format!("  - {}\n", cell(line)));
        }
    }
    text
}

/// A node's events, a line each.
#[must_use]
pub fn events(events: &[Event], context: &Context) -> String {
    if events.is_empty() {
        return "nothing was seen of this node yet\n".to_owned();
    }
    events.iter().map(|event| event_line(event, context)).collect()
}

/// One event as a line of a log.
#[must_use]
pub fn event_line(event: &Event, context: &Context) -> String {
    let (at, kind, detail) = (context.local(event.at), cell(&event.kind), cell(&event.detail));
    format!("{}\n", format!("{at}  {kind:<20}  {detail}").trim_end())
}

/// A node's deployments, a line each.
#[must_use]
pub fn deployments(deployments: &[Deployment], context: &Context) -> String {
    if deployments.is_empty() {
        return "no deployments: `plumbline node deploy NODE --image IMAGE` asks for one\n".to_owned();
    }
    let heading = ["REQUESTED", "BY", "IMAGE", "STATE", "ATTEMPT", "PROGRESS", "REASON"];
    let rows = deployments.iter().map(|deployment| {
        [
            context.age(deployment.created_at),
            deployment.requested_by.clone(),
            image(deployment),
            deployment.state.clone(),
            format!("{} of {}", deployment.attempt, deployment.attempts_max),
            progress(deployment),
            deployment.reason.clone(),
        ]
    });
    table(context, heading, rows)
}

/// One deployment that was just asked for.
#[must_use]
pub fn deployment(deployment: &Deployment, _: &Context) -> String {
    format!(
        "deployment {} of image {}: {}\n",
        cell(&deployment.id),
        cell(&image(deployment)),
        cell(&deployment.reason)
    )
}

/// One deployment with what came of it.
#[must_use]
pub fn deployment_in_full(deployment: &Deployment, context: &Context) -> String {
    let asked = match (deployment.mode, deployment.keep.as_slice()) {
        (DeployMode::Wipe, _) => "wipe the disk".to_owned(),
        (DeployMode::InPlace, []) => "keep what is right on the disk, else wipe it".to_owned(),
        (DeployMode::InPlace, keep) => format!("keep what is right on the disk, and {}", keep.join(", ")),
    };
    let mut lines = vec![
        ("deployment", deployment.id.clone()),
        ("image", image(deployment)),
        ("state", deployment.state.clone()),
        ("reason", deployment.reason.clone()),
        (
            "attempt",
            format!("{} of {}", deployment.attempt, deployment.attempts_max),
        ),
        ("asked for", asked),
        (
            "by",
            format!("{}, {}", deployment.requested_by, context.age(deployment.created_at)),
        ),
        ("progress", progress(deployment)),
    ];
    if let Some(Outcome::Installed {
        requests,
        duration_secs,
        work: Some(work),
        ..
    }) = &deployment.outcome
    {
        let done = match work.mode {
            DeployMode::InPlace => "in place",
            DeployMode::Wipe => "wiped",
        };
        lines.push(("done", format!("{done}, in {duration_secs} s: {}", work.reason)));
        lines.push((
            "fetched",
            format!("{} in {requests} requests", size_text(work.bytes_fetched)),
        ));
        let kept = format!("{} files, {}", work.files_kept, size_text(work.bytes_kept));
        lines.push(("kept", kept));
        lines.push(("written", format!("{} files", work.files_written)));
        lines.push(("removed", format!("{} files", work.files_removed)));
    }
    pairs(context, lines)
}

/// The image, and the channel that named it.
fn image(deployment: &Deployment) -> String {
    let digest: String = deployment.image.chars().take(12).collect();
    match &deployment.channel {
        Some(channel) => format!("{digest} ({channel})"),
        None => digest,
    }
}

fn progress(deployment: &Deployment) -> String {
    let Some(progress) = &deployment.progress else {
        return "-".to_owned();
    };
    let stage = progress.stage.as_str();
    match (progress.bytes_done.min(progress.bytes_total), progress.bytes_total) {
        (_, 0) => stage.to_owned(),
        (done, total) => {
            let percent = u128::from(done) * 100 / u128::from(total);
            format!("{stage}: {percent} % of {}", size_text(total))
        }
    }
}
