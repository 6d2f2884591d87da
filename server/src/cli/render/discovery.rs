//! Machines nobody listed.

use crate::cli::table::table;
use crate::cli::text::Context;
use crate::cli::views::{OtherDhcpServer, Sighting, Window};

/// Machines that got no answer.
#[must_use]
pub fn sightings(sightings: &[Sighting], context: &Context) -> String {
    if sightings.is_empty() {
        return "no unlisted machine has asked\n".to_owned();
    }
    let heading = ["MAC", "LAST", "FIRST", "TIMES", "CLASS", "RELAY", "CIRCUIT"];
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let rows = sightings.iter().map(|sighting| {
        [
            sighting.mac.clone(),
            context.age(sighting.last_at),
            context.age(sighting.first_at),
            sighting.count.to_string(),
            or_dash(&sighting.vendor_class),
            or_dash(&sighting.relay),
            or_dash(&sighting.relay_circuit),
        ]
    });
    table(context, heading, rows)
}

/// Other DHCP servers of the network.
#[must_use]
pub fn dhcp_servers(servers: &[OtherDhcpServer], context: &Context) -> String {
    if servers.is_empty() {
        return "no machine has named another DHCP server\n".to_owned();
    }
    let heading = ["SERVER", "ON", "LAST", "FIRST", "TIMES", "LAST NAMED BY"];
    let rows = servers.iter().map(|server| {
        [
            server.address.clone(),
            match server.interface.as_str() {
                "" => "-".to_owned(),
                name => name.to_owned(),
            },
            context.age(server.last_at),
            context.age(server.first_at),
            server.count.to_string(),
            server.last_mac.clone(),
        ]
    });
    table(context, heading, rows)
}

/// Windows that are open.
#[must_use]
pub fn windows(windows: &[Window], context: &Context) -> String {
    if windows.is_empty() {
        return "discovery is not armed: unlisted machines get no answer\n".to_owned();
    }
    let heading = ["SUBNET OR CIRCUIT", "ENDS", "ADMITTED", "BY"];
    let rows = windows.iter().map(|window| {
        [
            window.place().to_owned(),
            context.age(window.expires_at),
            format!("{} of {}", window.nodes_used, window.nodes_max),
            window.armed_by.clone(),
        ]
    });
    table(context, heading, rows)
}
