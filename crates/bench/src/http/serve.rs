//! This project's boot listener, alone in a process: what is measured beside nginx.
//!
//! Routes, listener, runtime and log level are those of the appliance, over an image store on disk. Packs need no
//! database, so there is none: a request that asked it something would fail.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use plumbline::app::App;
use plumbline::config::Config;
use plumbline::http;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves the image store of the data folder `folder` on `listen` until it is killed.
///
/// # Errors
/// A folder that cannot be used, or an address that cannot be bound.
pub fn serve(listen: SocketAddr, folder: &Path) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let loaders = folder.join("loaders");
    std::fs::create_dir_all(&loaders).with_context(|| format!("cannot make {}", loaders.display()))?;
    // The appliance starts with no empty folder of loaders; none is measured.
    std::fs::write(loaders.join("snponly.efi"), "no loader").context("cannot write a loader")?;
    let text = format!(
        "data_dir = {folder:?}\n[boot]\ninterface = \"lo\"\naddress = \"127.0.0.1/8\"\nloaders_dir = {loaders:?}\n"
    );
    let config = Config::parse(&text, Path::new("benchmark"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let pool = sqlx::PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/nothing")?;
        let app = App::open(Arc::new(config), Store::new(pool))?;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        let router = http::boot::router(app);
        http::listener::plain(listener, http::boot::CONNECTIONS, router, CancellationToken::new()).await;
        Ok(())
    })
}
