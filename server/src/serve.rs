//! `plumbline serve`: everything started in order, and stopped in reverse.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use store::Store;
use store::cluster::{self, ClusterConfig, RunningCluster};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::{App, AppError};
use crate::config::{BootConfig, Config};
use crate::http::listener::Connections;
use crate::tasks::Schedule;
use crate::{boot_plane, http, tasks};

/// Time for everything to stop before it is left behind.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Serves until SIGINT or SIGTERM, or until something it cannot do without ends.
///
/// # Errors
/// What could not be started, or what ended.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    let config = Arc::new(config);
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("creating the data folder {}", config.data_dir.display()))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let (cluster, store) = database(&config).await?;
    let app = App::open(config, store)?;
    if let Some(password) = crate::app::auth::first_admin(&app.store).await? {
        // Once and never again: only its hash is kept.
        println!("First start: an administrator was created.\n  user:     admin\n  password: {password}");
    }
    let cancel = CancellationToken::new();
    let mut running = JoinSet::new();
    let result = match start(&app, &cancel, &mut running).await {
        Err(error) => Err(error),
        Ok(()) => {
            tracing::info!(people = %app.config.people_listen, agents = %app.config.agents_listen, "serving");
            tokio::select! {
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
                Some(ended) = running.join_next() => match ended {
                    Ok(Ok(())) => Err(anyhow::anyhow!("a listener ended by itself")),
                    Ok(Err(error)) => Err(error),
                    Err(error) => Err(error.into()),
                },
                error = keep_cluster(cluster.as_ref()) => Err(error),
            }
        }
    };
    tracing::info!("stopping");
    cancel.cancel();
    let joined = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_LIMIT, joined).await.is_err() {
        tracing::warn!("something did not stop in {} s", STOP_LIMIT.as_secs());
        running.abort_all();
    }
    app.store.close().await;
    if let Some(cluster) = cluster {
        cluster
            .into_inner()
            .stop()
            .await
            .context("stopping the private PostgreSQL")?;
    }
    result
}

/// The database: an outside one, or the private cluster.
async fn database(config: &Config) -> anyhow::Result<(Option<tokio::sync::Mutex<RunningCluster>>, Store)> {
    if let Some(url) = &config.database_url {
        let options = url.parse().context("database.url")?;
        return Ok((
            None,
            Store::connect(options).await.context("connecting to database.url")?,
        ));
    }
    let cluster = cluster::start(&ClusterConfig::new(&config.data_dir))
        .await
        .context("the private PostgreSQL")?;
    let store = Store::connect(cluster.connect_options())
        .await
        .context("connecting to the private PostgreSQL");
    match store {
        Ok(store) => Ok((Some(tokio::sync::Mutex::new(cluster)), store)),
        Err(error) => {
            cluster.stop().await.context("stopping the private PostgreSQL")?;
            Err(error)
        }
    }
}

/// Starts the private PostgreSQL again whenever it ends; returns only when that fails.
async fn keep_cluster(cluster: Option<&tokio::sync::Mutex<RunningCluster>>) -> anyhow::Error {
    let Some(cluster) = cluster else {
        return std::future::pending().await;
    };
    loop {
        let mut cluster = cluster.lock().await;
        let ending = cluster.exited().await;
        tracing::error!(?ending, "the private PostgreSQL has ended; starting it again");
        if let Err(error) = cluster.restart().await {
            return anyhow::Error::new(error).context("the private PostgreSQL ended and does not start again");
        }
        tracing::info!("the private PostgreSQL is back");
    }
}

async fn start(app: &App, cancel: &CancellationToken, running: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    let metrics = app.metrics.clone();
    let people = http::people::router(app.clone())
        .merge(Router::new().route("/metrics", get(move || std::future::ready(metrics.render()))));
    plain_listener(
        http::people::CONNECTIONS,
        app.config.people_listen,
        people,
        cancel,
        running,
    )
    .await?;

    let listener = bind("agents", app.config.agents_listen).await?;
    let names = agent_names(&app.config);
    let (router, authority, stop) = (http::agents::router(app.clone()), app.authority.clone(), cancel.clone());
    running.spawn(async move { Ok(http::agents::serve(listener, router, authority, names, stop).await?) });

    if let Some(boot) = app.config.boot.clone() {
        boot_plane_start(app, &boot, cancel, running).await?;
    }
    start_tasks(app, cancel, running);
    Ok(())
}

fn start_tasks(app: &App, cancel: &CancellationToken, running: &mut JoinSet<anyhow::Result<()>>) {
    let schedule = |name, first_after, period| Schedule {
        name,
        first_after: Duration::from_secs(first_after),
        period: Duration::from_secs(period),
    };
    let mut spawn = Spawner { app, cancel, running };
    spawn.task(schedule("register_images", 0, 2), None, tasks::register_images);
    // Deployers get as long after a start as they may be silent: this server may have been away, not they.
    let silent = u64::from(tasks::SILENT_SECS);
    spawn.task(
        schedule("watch_deployments", silent, 10),
        None,
        tasks::watch_deployments,
    );
    spawn.task(schedule("prune", 60, 3_600), None, tasks::prune);
    spawn.task(schedule("rejudge", 0, 24 * 3_600), None, tasks::rejudge);
    let nudge = app.remediation_nudge.clone();
    spawn.task(schedule("remediate", 2, 5), Some(nudge), tasks::remediate);
    let builds = crate::app::builds::run(app.clone(), cancel.clone());
    running.spawn(async move {
        builds.await;
        Ok(())
    });
    let (notices, store, stop) = (app.notices.clone(), app.store.clone(), cancel.clone());
    running.spawn(async move {
        notices.run(store, stop).await;
        Ok(())
    });
}

/// Spawns tasks that run by a schedule.
struct Spawner<'a> {
    app: &'a App,
    cancel: &'a CancellationToken,
    running: &'a mut JoinSet<anyhow::Result<()>>,
}

impl Spawner<'_> {
    fn task<F, R>(&mut self, schedule: Schedule, nudge: Option<Arc<Notify>>, task: F)
    where
        F: Fn(App) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), AppError>> + Send + 'static,
    {
        let (app, stop) = (self.app.clone(), self.cancel.clone());
        self.running.spawn(async move {
            tasks::every(schedule, app, stop, nudge, task).await;
            Ok(())
        });
    }
}

async fn boot_plane_start(
    app: &App,
    boot: &BootConfig,
    cancel: &CancellationToken,
    running: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    for interface in &boot.interfaces {
        let name = &interface.name;
        let address = SocketAddr::new(IpAddr::V4(interface.address.addr()), boot.http_port);
        plain_listener(
            http::boot::CONNECTIONS,
            address,
            http::boot::router(app.clone()),
            cancel,
            running,
        )
        .await?;
        let tftp = boot_plane::tftp_server(app, boot, interface).with_context(|| format!("TFTP on {name}"))?;
        let stop = cancel.clone();
        running.spawn(async move {
            tftp.run(stop).await;
            Ok(())
        });
        let dhcp = boot_plane::dhcp_server(app, boot, interface).with_context(|| format!("DHCP on {name}"))?;
        let Some(dhcp) = dhcp else { continue };
        let stop = cancel.clone();
        running.spawn(async move {
            dhcp.run(stop).await;
            Ok(())
        });
        let others = boot_plane::others::listen(app.clone(), boot.clone(), interface.clone(), cancel.clone());
        running.spawn(async move {
            others.await;
            Ok(())
        });
    }
    Ok(())
}

/// Serves plain HTTP in the background.
async fn plain_listener(
    how: Connections,
    address: SocketAddr,
    router: Router,
    cancel: &CancellationToken,
    running: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let listener = bind(how.name, address).await?;
    let stop = cancel.clone();
    running.spawn(async move {
        http::listener::plain(listener, how, router, stop).await;
        Ok(())
    });
    Ok(())
}

async fn bind(name: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("the {name} listener on {address}"))
}

/// Addresses agents may reach the listener by, for its certificate.
fn agent_names(config: &Config) -> Vec<IpAddr> {
    let mut names = vec![IpAddr::from([127, 0, 0, 1])];
    if !config.agents_listen.ip().is_unspecified() {
        names.push(config.agents_listen.ip());
    }
    if let Some(boot) = &config.boot {
        names.extend(
            boot.interfaces
                .iter()
                .map(|interface| IpAddr::V4(interface.address.addr())),
        );
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    names
}
