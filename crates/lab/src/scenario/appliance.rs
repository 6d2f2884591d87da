//! The appliance in a rack: the real server with its private PostgreSQL, driven by its own command line.

use crate::command::{Captured, run_captured};
use crate::environment::LabEnvironment;
use crate::netns::{BRIDGE, NetworkNamespace};
use crate::process::Supervised;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// People's listener inside the namespace.
pub const PEOPLE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const CONFIGURATION: &str = "plumbline.toml";
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const CLI_LIMIT: Duration = Duration::from_secs(60);

/// How the appliance takes part in a rack's wire.
#[derive(Debug, Clone)]
pub struct BootSettings {
    /// `boot.dhcp`.
    pub dhcp: &'static str,
    /// `boot.chain`.
    pub chain: &'static str,
    /// Further lines of `[boot]`.
    pub more: String,
}

impl BootSettings {
    /// The only DHCP server of the wire, with this choice of boot loaders.
    pub fn alone(chain: &'static str) -> Self {
        Self {
            dhcp: "full",
            chain,
            more: String::new(),
        }
    }
}

/// A running appliance.
#[derive(Debug)]
pub struct Appliance {
    namespace: NetworkNamespace,
    server: Supervised,
    binary: PathBuf,
    folder: PathBuf,
    password: String,
}

impl Appliance {
    /// Starts the server in a namespace of its own and signs in. `folder` holds its data, configuration and log; `settings`
    /// say how it takes part in the wire.
    ///
    /// # Errors
    /// When it does not come up; the message carries the end of its log.
    pub fn start(
        environment: &LabEnvironment,
        namespace: NetworkNamespace,
        folder: &Path,
        settings: &BootSettings,
    ) -> Result<Self> {
        fs::write(
            folder.join(CONFIGURATION),
            configuration(environment, folder, settings)?,
        )?;
        let mut server = spawn(&namespace, &environment.server, folder)?;
        let line = server.wait_line("password:", START_LIMIT)?;
        let password = line.split_whitespace().last().context("the first password")?.to_owned();
        let mut appliance = Self {
            namespace,
            server,
            binary: environment.server.clone(),
            folder: folder.to_owned(),
            password,
        };
        appliance.wait_ready()?;
        let server = format!("http://{PEOPLE}");
        let captured = appliance.run(&["login", "--server", &server, "--user", "admin"])?;
        ensure!(captured.status.success(), "signing in failed: {}", captured.stderr);
        Ok(appliance)
    }

    /// Waits until it answers and its database does.
    ///
    /// # Errors
    /// When it ends, or does not come up in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        wait_until(START_LIMIT, "the appliance to be ready", || {
            ensure!(
                self.server.is_running()?,
                "the appliance ended: {}",
                self.server.log_text()
            );
            Ok(self.get("/readyz").ok().filter(|(status, _)| *status == 200))
        })?;
        Ok(())
    }

    /// Kills the server (SIGKILL), with whatever it is doing, and starts it again.
    ///
    /// # Errors
    /// When it does not come up again.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server = spawn(&self.namespace, &self.binary, &self.folder)?;
        self.wait_ready()
    }

    /// Kills the private PostgreSQL's first process (SIGKILL) and waits until the server has started it again.
    ///
    /// # Errors
    /// When it does not come up again.
    pub fn kill_postgres(&mut self) -> Result<()> {
        let postmaster = self.postmaster()?;
        let pid = i32::try_from(postmaster)
            .ok()
            .and_then(Pid::from_raw)
            .context("postmaster.pid")?;
        kill_process(pid, Signal::KILL).context("killing PostgreSQL")?;
        wait_until(START_LIMIT, "PostgreSQL to be started again", || {
            Ok(self.postmaster().ok().filter(|now| *now != postmaster))
        })?;
        self.wait_ready()
    }

    /// The namespace it runs in.
    pub fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// Whether the server process lives.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_running(&mut self) -> Result<bool> {
        self.server.is_running()
    }

    /// Runs one of the appliance's own commands and returns its JSON.
    ///
    /// # Errors
    /// When the command fails; the message is the command's.
    pub fn cli(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.cli_text(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("`plumbline {}` printed no JSON", arguments.join(" ")))
    }

    /// Runs one of the appliance's own commands and returns what it prints.
    ///
    /// # Errors
    /// As [`Appliance::cli`].
    pub fn cli_text(&self, arguments: &[&str]) -> Result<String> {
        let captured = self.run(arguments)?;
        ensure!(
            captured.status.success(),
            "`plumbline {}` failed: {}",
            arguments.join(" "),
            captured.stderr.trim()
        );
        Ok(captured.stdout)
    }

    /// Runs one of the appliance's own commands that says something by its exit code; returns that and what it prints.
    ///
    /// # Errors
    /// When it does not end in time, or by a signal.
    pub fn cli_code(&self, arguments: &[&str], limit: Duration) -> Result<(i32, String)> {
        self.code_of(arguments, None, limit)
    }

    /// As [`Appliance::cli_code`], called in this folder: some commands write files there.
    ///
    /// # Errors
    /// As [`Appliance::cli_code`].
    pub fn cli_code_in(&self, folder: &Path, arguments: &[&str], limit: Duration) -> Result<(i32, String)> {
        self.code_of(arguments, Some(folder), limit)
    }

    fn code_of(&self, arguments: &[&str], folder: Option<&Path>, limit: Duration) -> Result<(i32, String)> {
        let captured = self.run_in(folder, arguments, limit)?;
        let code = captured.status.code().context("the command was ended by a signal")?;
        ensure!(
            code != 1,
            "`plumbline {}` failed: {}",
            arguments.join(" "),
            captured.stderr.trim()
        );
        Ok((code, captured.stdout))
    }

    fn run(&self, arguments: &[&str]) -> Result<Captured> {
        self.run_in(None, arguments, CLI_LIMIT)
    }

    fn run_in(&self, folder: Option<&Path>, arguments: &[&str], limit: Duration) -> Result<Captured> {
        let mut command = self.namespace.command(&self.binary);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        command.args(arguments);
        command.env("PLUMBLINE_PASSWORD", &self.password);
        self.add_login(&mut command);
        run_captured(&mut command, limit)
    }

    /// Lets a command use the appliance's login, and nobody else's.
    fn add_login(&self, command: &mut Command) {
        command
            .env("HOME", &self.folder)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("PLUMBLINE_TOKEN")
            .env_remove("PLUMBLINE_SERVER");
    }

    /// A plain GET on people's listener: status and body.
    ///
    /// # Errors
    /// When nothing answers.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = self.namespace.connect(PEOPLE)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {PEOPLE}\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(16 << 20).read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
        let status = head
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .context("an HTTP status")?;
        Ok((status, body.to_owned()))
    }

    /// A counter of the server's metrics, summed over its labels that contain `label`.
    ///
    /// # Errors
    /// When the metrics cannot be read.
    pub fn counter(&self, name: &str, label: &str) -> Result<u64> {
        let (_, text) = self.get("/metrics")?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(label));
        Ok(lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>() as u64)
    }

    /// The folder of its data.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Highest resident memory of the server process so far, in MB.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn server_rss_mb(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id()))?;
        Ok(status_kib(&status, "VmHWM:").context("VmHWM of the server")? / 1000)
    }

    /// Memory of the private PostgreSQL, in MB: the sum over its processes of the proportional set size, which counts
    /// shared buffers once.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn postgres_rss_mb(&self) -> Result<u64> {
        let postmaster = self.postmaster()?;
        let mut total_kib = 0;
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let Ok(status) = fs::read_to_string(path.join("status")) else {
                continue;
            };
            let pid = status_kib(&status, "Pid:").unwrap_or(0);
            let parent = status_kib(&status, "PPid:").unwrap_or(0);
            if pid == u64::from(postmaster) || parent == u64::from(postmaster) {
                let memory = fs::read_to_string(path.join("smaps_rollup")).unwrap_or_default();
                total_kib += status_kib(&memory, "Pss:").unwrap_or(0);
            }
        }
        Ok(total_kib / 1000)
    }

    /// Process id of the private PostgreSQL's first process.
    fn postmaster(&self) -> Result<u32> {
        let path = self.data_dir().join("postgres/data/postmaster.pid");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        text.lines()
            .next()
            .unwrap_or_default()
            .trim()
            .parse()
            .context("postmaster.pid")
    }

    /// The administrator's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Adds the user `viewer`, who may only read; returns the password.
    ///
    /// # Errors
    /// When the appliance refuses.
    pub fn add_viewer(&self) -> Result<String> {
        let password = format!("viewer {}", self.password);
        let mut command = self.namespace.command("sh");
        command.args([
            "-c",
            "printf '%s\\n' \"$VIEWER_PASSWORD\" | \"$0\" user add viewer --role viewer",
        ]);
        command.arg(&self.binary).env("VIEWER_PASSWORD", &password);
        self.add_login(&mut command);
        let captured = run_captured(&mut command, CLI_LIMIT)?;
        ensure!(
            captured.status.success(),
            "adding a viewer failed: {}",
            captured.stderr.trim()
        );
        Ok(password)
    }

    /// What to do with a demonstration that stays up.
    pub fn look_around(&self, address: SocketAddr) -> String {
        format!(
            "\n\
             \x20 dashboard     http://{address}      user admin, password {1}\n\
             \x20 command line  {0} login --server http://{address}\n\
             \x20               {0} node list · {0} drift list · {0} remediate\n\
             \x20 API           http://{address}/api/v1/openapi.json\n\
             \x20 logs          {2}\n\
             \nIt stays up until Ctrl-C.\n",
            self.binary.display(),
            self.password,
            self.folder.display()
        )
    }

    /// Stops the server as an operator would.
    ///
    /// # Errors
    /// When it does not end in time, or not cleanly.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.server.terminate(STOP_LIMIT)?;
        ensure!(status.success(), "the appliance ended with {status}");
        Ok(())
    }
}

fn spawn(namespace: &NetworkNamespace, binary: &Path, folder: &Path) -> Result<Supervised> {
    let mut command = namespace.command(binary);
    command.arg("serve").arg("--config").arg(folder.join(CONFIGURATION));
    Supervised::spawn("the appliance", command, &folder.join("server.log"))
}

fn status_kib(text: &str, field: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}

fn configuration(environment: &LabEnvironment, folder: &Path, settings: &BootSettings) -> Result<String> {
    let BootSettings { dhcp, chain, more } = settings;
    let key = fs::read_to_string(folder.join("operator.pub")).context("the operator's public key")?;
    Ok(format!(
        "data_dir = {data:?}\n\n\
         [boot]\ninterface = \"{BRIDGE}\"\ndhcp = \"{dhcp}\"\nchain = \"{chain}\"\nloaders_dir = {loaders:?}\n\
         pool_first = \"10.77.0.100\"\npool_last = \"10.77.0.199\"\n{more}\n\
         [people]\nlisten = \"{PEOPLE}\"\n\n\
         [site]\nauthorized_keys = [{key:?}]\n",
        data = folder.join("data"),
        loaders = environment.loaders,
        key = key.trim(),
    ))
}
