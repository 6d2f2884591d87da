//! Other DHCP servers on the segment, for the list that people see.

use netboot::MacAddr;
use netboot::dhcp::others::{Listener, ServerHeard};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{BootConfig, DhcpMode};

/// Listens until cancelled. A port that a DHCP client on the same interface holds is no reason not to serve: other
/// servers are then known by the machines that take their offers alone.
pub async fn listen(app: App, boot: BootConfig, cancel: CancellationToken) {
    let asks_as = match boot.dhcp {
        DhcpMode::Full => interface_mac(&boot.interface),
        // Beside the site's own server nothing is sent that nobody asked for.
        DhcpMode::Proxy | DhcpMode::Off => None,
    };
    let listener = match Listener::bind(&boot.interface, asks_as) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(interface = boot.interface, %error, "other DHCP servers cannot be listened for");
            return cancel.cancelled().await;
        }
    };
    let ours = boot.address.addr();
    let heard = |word: ServerHeard| {
        let app = app.clone();
        async move {
            if word.server == ours {
                return;
            }
            let client = word.client.map(|mac| mac.to_string()).unwrap_or_default();
            if let Err(error) = app.store.dhcp_server_seen(&word.server.to_string(), &client).await {
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
