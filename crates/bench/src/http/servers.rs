//! The servers that are measured.
//!
//! Idea: both listen on the same address of a network namespace of their own, one at a time, and serve the same files
//! under the same paths.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::Running;

/// Where the one server of the moment listens.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// Where packs lie in the data folder.
pub const PACKS: &str = "images/packs";
/// Path of packs, with the slash at its end.
pub const PATH: &str = "/boot/v1/packs/";

/// An HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// This project's.
    Plumbline,
    /// Another build of this project's.
    Before,
    /// nginx with sendfile.
    Nginx,
}

impl Server {
    /// Its name, for tables and keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plumbline => "plumbline",
            Self::Before => "before",
            Self::Nginx => "nginx",
        }
    }
}

/// Where the programs are. One that is not there is not measured.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This program, which serves with the appliance's routes.
    pub own: PathBuf,
    /// Another build of this program.
    pub before: Option<PathBuf>,
    /// nginx.
    pub nginx: PathBuf,
}

impl Programs {
    fn program(&self, server: Server) -> Option<&Path> {
        match server {
            Server::Plumbline => Some(&self.own),
            Server::Before => self.before.as_deref(),
            Server::Nginx => Some(&self.nginx),
        }
    }

    /// Whether `server` can be measured.
    pub fn has(&self, server: Server) -> bool {
        self.program(server).is_some_and(Path::is_file)
    }
}

/// Starts `server` on the data folder `folder` and waits until it serves the pack `probe`.
///
/// # Errors
/// When it cannot be started, ends at once, or does not answer.
pub fn start(programs: &Programs, server: Server, folder: &Path, probe: &str) -> Result<Running> {
    let program = programs
        .program(server)
        .with_context(|| format!("{} is not here", server.name()))?;
    let arguments = match server {
        Server::Plumbline | Server::Before => {
            let words = ["serve-http", "--listen", &ADDRESS.to_string(), "--folder"];
            let mut words: Vec<String> = words.map(str::to_owned).into();
            words.push(folder.display().to_string());
            words
        }
        Server::Nginx => {
            let configuration = folder.join("nginx.conf");
            std::fs::write(&configuration, nginx_configuration(folder)).context("cannot write nginx.conf")?;
            let (configuration, folder) = (configuration.display().to_string(), folder.display().to_string());
            ["-c", &configuration, "-p", &folder, "-e", "stderr"]
                .map(str::to_owned)
                .into()
        }
    };
    let answers = || {
        let Ok(mut stream) = TcpStream::connect(ADDRESS) else {
            return Ok(false);
        };
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("HEAD {PATH}{probe} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        if stream.read_to_string(&mut answer).is_err() {
            return Ok(false);
        }
        match answer.contains(" 200 ") {
            true => Ok(true),
            false => bail!("it answers {:?}", answer.lines().next()),
        }
    };
    Running::start(program, &arguments, answers).with_context(|| format!("{} does not serve", server.name()))
}

/// nginx as its manual advises for large files, with nothing that costs and that the appliance does not do: no log of
/// requests.
fn nginx_configuration(folder: &Path) -> String {
    let folder = folder.display();
    let mut text = String::new();
    let _infallible = write!(
        text,
        "user root;
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    server {{
        listen {ADDRESS} backlog=4096;
        location {PATH} {{ alias {folder}/{PACKS}/; }}
    }}
}}
"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_not_measured() {
        let programs = Programs {
            own: "/proc/self/exe".into(),
            before: None,
            nginx: "/nonexistent/nginx".into(),
        };
        assert!(programs.has(Server::Plumbline));
        assert!(!programs.has(Server::Before) && !programs.has(Server::Nginx));
    }

    #[test]
    fn nginx_serves_the_packs_where_the_appliance_does() {
        let text = nginx_configuration(Path::new("/data"));
        assert!(
            text.contains("location /boot/v1/packs/ { alias /data/images/packs/; }"),
            "{text}"
        );
        assert!(
            text.contains("sendfile on;") && text.contains("listen 127.0.0.1:8081 "),
            "{text}"
        );
    }
}
