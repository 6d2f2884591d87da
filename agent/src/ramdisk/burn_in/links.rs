//! Links: carrier and speed of every port, and whether they stay.
//!
//! Interfaces are brought up for it, because a port that is down tells nothing of its cable; they get no address, and go
//! down again (`lldp::Opened`). First the ports get time to train, then they are watched.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::latest::{LinkLayer, Port};

use super::Found;
use super::counters::number;
use super::watch::Watch;
use crate::ramdisk::{inventory, lldp};

/// How often ports are looked at.
const POLL: Duration = Duration::from_millis(250);
/// How long all ports must have had their links to be watched early.
const STEADY: Duration = Duration::from_secs(3);
/// How long ports are watched, at most.
const WATCHED: Duration = Duration::from_secs(15);

/// Blocks.
pub fn run(root: &Path, watch: &Watch) -> Found {
    let opened = lldp::Opened::all(root);
    let train_end = Instant::now() + watch.left() * 2 / 3;
    let mut all_since: Option<Instant> = None;
    while Instant::now() < train_end && !watch.is_cancelled() {
        let ports = ports(root);
        let linked = ports.iter().filter(|port| port.link).count();
        watch.say(format!("{linked} of {} ports have a link", ports.len()));
        match linked == ports.len() {
            true if all_since.get_or_insert_with(Instant::now).elapsed() >= STEADY => break,
            true => {}
            false => all_since = None,
        }
        std::thread::sleep(POLL);
    }
    let before = losses(root);
    let end = Instant::now() + watch.left().min(WATCHED);
    while Instant::now() < end && !watch.is_cancelled() {
        std::thread::sleep(POLL);
    }
    let after = losses(root);
    let mut ports = ports(root);
    for port in &mut ports {
        let lost = after.get(&port.name).zip(before.get(&port.name));
        let lost = lost.map_or(0, |(after, before)| after.saturating_sub(*before));
        port.losses = u32::try_from(lost).unwrap_or(u32::MAX);
    }
    if let Err(reason) = opened {
        return Found {
            ports,
            ..Found::not_run(format!("the interfaces could not be brought up: {reason}"))
        };
    }
    if ports.is_empty() {
        return Found::not_run("there is no network interface");
    }
    Found {
        ports: ports.clone(),
        ..Found::of(&[], told(&ports), Vec::new())
    }
}

fn told(ports: &[Port]) -> String {
    let linked: Vec<String> = ports
        .iter()
        .filter(|port| port.link)
        .map(|port| match port.speed_mbps {
            Some(speed) => format!("{} {speed} Mb/s", port.name),
            None => format!("{} at an unknown speed", port.name),
        })
        .collect();
    match linked.is_empty() {
        true => format!("none of {} ports has a link", ports.len()),
        false => format!(
            "{} of {} ports have a link: {}",
            linked.len(),
            ports.len(),
            linked.join(", ")
        ),
    }
}

/// All ports: Ethernet interfaces with hardware behind them, and InfiniBand ports. An InfiniBand interface of the network
/// stack is a view of its port and not another one; so is the RDMA side of an Ethernet card.
pub fn ports(root: &Path) -> Vec<Port> {
    let nics = inventory::read_nics(root);
    let mut ports: Vec<Port> = nics
        .into_iter()
        .filter(|nic| nic.mac.len() == "00:00:00:00:00:00".len())
        .map(|nic| Port {
            name: nic.name,
            address: nic.mac,
            layer: LinkLayer::Ethernet,
            driver: nic.driver,
            pci_address: nic.pci_address,
            link: nic.link,
            state: None,
            speed_mbps: nic.speed_mbps,
            losses: 0,
        })
        .collect();
    ports.extend(infiniband(root));
    ports
}

fn infiniband(root: &Path) -> Vec<Port> {
    let mut ports = Vec::new();
    for device in inventory::entries(&root.join("sys/class/infiniband")) {
        let folder = root.join("sys/class/infiniband").join(&device);
        for number in inventory::entries(&folder.join("ports")) {
            ports.extend(infiniband_port(&folder, &device, &number));
        }
    }
    ports
}

fn infiniband_port(folder: &Path, device: &str, number: &str) -> Option<Port> {
    let port = folder.join("ports").join(number);
    let text = |path: &Path| Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    if text(&port.join("link_layer"))? != "InfiniBand" {
        return None;
    }
    // `4: ACTIVE`, `5: LinkUp`.
    let word = |text: String| text.split_once(':').map(|(_, word)| word.trim().to_owned());
    let link = text(&port.join("phys_state")).and_then(word).as_deref() == Some("LinkUp");
    let hardware = folder.join("device").canonicalize().ok();
    let driver = folder.join("device/driver").canonicalize().ok();
    let name = |path: Option<std::path::PathBuf>| Some(path?.file_name()?.to_str()?.to_owned());
    Some(Port {
        name: format!("{device}/{number}"),
        address: text(&folder.join("node_guid")).unwrap_or_default(),
        layer: LinkLayer::Infiniband,
        driver: name(driver),
        pci_address: name(hardware),
        link,
        state: text(&port.join("state")).and_then(word),
        speed_mbps: text(&port.join("rate"))
            .filter(|_| link)
            .and_then(|text| rate_mbps(&text)),
        losses: 0,
    })
}

/// `400 Gb/sec (4X NDR)`.
fn rate_mbps(text: &str) -> Option<u32> {
    let gbps: f64 = text.split_once(" Gb/sec")?.0.parse().ok()?;
    (gbps > 0.0 && gbps < 1e6).then(|| (gbps * 1_000.0).round() as u32)
}

/// How often each port lost its link, ever.
fn losses(root: &Path) -> BTreeMap<String, u64> {
    let lost = |port: Port| {
        let path = match (port.layer, port.name.split_once('/')) {
            (LinkLayer::Infiniband, Some((device, number))) => root
                .join("sys/class/infiniband")
                .join(device)
                .join("ports")
                .join(number)
                .join("counters/link_downed"),
            _ => root.join("sys/class/net").join(&port.name).join("carrier_down_count"),
        };
        Some((port.name, number(&path)?))
    };
    ports(root).into_iter().filter_map(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    #[test]
    fn an_infiniband_port_is_one_port_with_its_rate() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (device, layer, state, phys, rate) in [
            ("mlx5_0", "InfiniBand", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"),
            ("mlx5_1", "InfiniBand", "1: DOWN", "3: Disabled", "2.5 Gb/sec (1X SDR)"),
            ("mlx5_2", "Ethernet", "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)"),
        ] {
            let port = format!("sys/class/infiniband/{device}/ports/1");
            write(root, &format!("{port}/link_layer"), layer);
            write(root, &format!("{port}/state"), state);
            write(root, &format!("{port}/phys_state"), phys);
            write(root, &format!("{port}/rate"), rate);
            write(root, &format!("{port}/counters/link_downed"), "2\n");
            write(
                root,
                &format!("sys/class/infiniband/{device}/node_guid"),
                "0c42:a103:0042:2a3e\n",
            );
        }
        // The network stack's view of the first one.
        write(
            root,
            "sys/class/net/ib0/address",
            "00:00:10:49:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:9c:81:e2\n",
        );
        write(root, "sys/class/net/ib0/device/vendor", "0x15b3\n");
        let found = ports(root);
        let seen: Vec<_> = found
            .iter()
            .map(|port| (port.name.as_str(), port.link, port.state.as_deref(), port.speed_mbps))
            .collect();
        assert_eq!(
            seen,
            [
                ("mlx5_0/1", true, Some("ACTIVE"), Some(400_000)),
                ("mlx5_1/1", false, Some("DOWN"), None)
            ]
        );
        assert_eq!(losses(root)["mlx5_0/1"], 2);
        assert_eq!(rate_mbps("2.5 Gb/sec (1X SDR)"), Some(2_500));
        assert_eq!(rate_mbps("unknown"), None);
        assert_eq!(told(&found), "1 of 2 ports have a link: mlx5_0/1 400000 Mb/s");
    }
}
