//! Other DHCP servers on the segments, for the list that people see.

use std::net::Ipv4Addr;

use netboot::MacAddr;
use netboot::dhcp::others::{Listener, ServerHeard};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{BootConfig, BootInterface, DhcpMode};

/// Where a server was heard, for people: the interface, and the relay if one is between.
pub(super) fn heard_at(interface: &BootInterface, relay: Ipv4Addr) -> String {
    match relay.is_unspecified() {
        true => interface.name.clone(),
        false => format!("{} via {relay}", interface.name),
    }
}

/// Listens on one interface until cancelled. A port that a DHCP client on the same interface holds is no reason not to serve: other
/// servers are then known by the machines that take their offers alone.
pub async fn listen(app: App, boot: BootConfig, interface: BootInterface, cancel: CancellationToken) {
    let asks_as = match interface.dhcp {
        DhcpMode::Full => interface_mac(&interface.name),
        // Beside the site's own server nothing is sent that nobody asked for.
        DhcpMode::Proxy | DhcpMode::Off => None,
    };
    let listener = match Listener::bind(&interface.name, asks_as) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(interface = interface.name, %error, "other DHCP servers cannot be listened for");
            return cancel.cancelled().await;
        }
    };
    let heard_at = heard_at(&interface, Ipv4Addr::UNSPECIFIED);
    let heard = |word: ServerHeard| {
        let (app, heard_at, is_own) = (app.clone(), heard_at.clone(), boot.is_own(word.server));
        async move {
            if is_own {
                return;
            }
            let client = word.client.map(|mac| mac.to_string()).unwrap_or_default();
            let server = word.server.to_string();
            if let Err(error) = app.store.dhcp_server_seen(&server, &heard_at, &client).await {
                tracing::warn!(error = %crate::http::error::chain(&error), "another DHCP server was not kept");
            }
        }
    };
    listener.run(heard, cancel).await;
}

fn interface_mac(interface: &str) -> Option<MacAddr> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address")).ok()?;
    text.trim().parse().ok()
}
