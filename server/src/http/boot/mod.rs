//! The boot listener: plain HTTP on the provisioning network only.
//!
//! Nothing here is secret except the token in a script, and everything that is installed is checked against signatures
//! by whoever fetches it.

pub mod admission;
mod body;
mod data;
pub mod pace;
mod send;
mod throughput;

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use netboot::script::Language;
use netboot::{Architecture, MacAddr};
use protocol::latest::{Clock, paths};
use serde::Deserialize;

use crate::app::boot::Said;
use crate::app::{App, AppError, boot};
use crate::http::listener::{Connections, LocalAddress};

/// Machines keep connections open between files, and a whole fleet may start at once.
pub const CONNECTIONS: Connections = Connections {
    name: "boot",
    open_max: 20_000,
    head_limit: Duration::from_secs(60),
    stall_limit: Some(Duration::from_secs(60)),
    title_case: true,
};

/// The routes of the boot listener.
pub fn router(app: App) -> Router {
    Router::new()
        .route(netboot::dhcp::boot::SCRIPT_PATH, get(script))
        .route(
            &format!("{}/{{mac}}/{{cpu}}/grub.cfg", netboot::dhcp::boot::GRUB_PATH),
            get(grub_script),
        )
        .route(&format!("/{}", crate::boot_plane::GRUB_START), get(data::grub_start))
        .route("/boot/v1/loaders/{*name}", get(data::loader))
        .route("/boot/v1/deployer/{digest}/{artifact}", get(data::artifact))
        .route("/boot/v1/authority.cpio", get(authority))
        .route(paths::CLOCK, get(clock))
        .route(
            paths::THROUGHPUT,
            get(throughput::zeros)
                .post(throughput::sink)
                .layer(DefaultBodyLimit::disable()),
        )
        .route(
            &format!("{}/{{digest}}/{{document}}", paths::IMAGES),
            get(data::document),
        )
        .route(&format!("{}/{{digest}}", paths::PACKS), get(data::pack))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .with_state(app)
}

#[derive(Deserialize)]
struct ScriptQuery {
    mac: String,
    /// DHCP option 93, in decimal: in the URL that this server's DHCP answers name.
    arch: Option<String>,
    /// iPXE's own: from a site's DHCP server, or asked for by a script.
    buildarch: Option<String>,
}

impl ScriptQuery {
    fn said(&self) -> Said {
        match (&self.buildarch, &self.arch) {
            (Some(name), _) => Said::ByLoader(Architecture::of_loader(name)),
            (None, Some(number)) => Said::ByDhcp(number.parse().ok().and_then(Architecture::of_dhcp)),
            (None, None) => Said::Nothing,
        }
    }
}

async fn script(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    local: LocalAddress,
    method: Method,
    Query(query): Query<ScriptQuery>,
) -> Response {
    let said = query.said();
    script_in(Language::Ipxe, &app, (peer, local), &method, &query.mac, said).await
}

/// GET `/boot/v1/grub/{mac}/{cpu}/grub.cfg`.
async fn grub_script(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    local: LocalAddress,
    method: Method,
    Path((mac, cpu)): Path<(String, String)>,
) -> Response {
    let said = Said::ByLoader(Architecture::of_loader(&cpu));
    script_in(Language::Grub, &app, (peer, local), &method, &mac, said).await
}

async fn script_in(
    language: Language,
    app: &App,
    (peer, LocalAddress(local)): (SocketAddr, LocalAddress),
    method: &Method,
    mac: &str,
    said: Said,
) -> Response {
    app.metrics.boot_request("script");
    let mac: MacAddr = match mac.parse() {
        Ok(mac) => mac,
        Err(error) => return AppError::Invalid(format!("mac: {error}")).into_response(),
    };
    app.bodies.machines().learn(peer.ip(), mac);
    let asked = boot::ScriptAsked {
        mac,
        peer: peer.ip(),
        local,
        language,
        said,
        is_probe: *method == Method::HEAD,
    };
    match boot::script(app, &asked).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response(),
        // The person at the rack sees the reason; the machine goes on to its next boot device.
        Err(error) => {
            tracing::warn!(node.mac = %mac, error = %crate::http::error::chain(&error), "no boot script");
            netboot::script::refuse(language, &error.to_string()).into_response()
        }
    }
}

async fn authority(State(app): State<App>, LocalAddress(local): LocalAddress) -> Result<Vec<u8>, AppError> {
    app.metrics.boot_request("authority");
    boot::authority_archive(&app, local)
}

async fn clock(State(app): State<App>) -> Json<Clock> {
    app.metrics.boot_request("clock");
    let now = time::OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
    Json(Clock {
        unix_ms: u64::try_from(now).unwrap_or(0),
    })
}
