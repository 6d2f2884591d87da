//! The program itself, against a server on loopback.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::people::{PASSWORD, Server};

/// A person with a home folder of their own.
pub(super) struct Person {
    home: tempfile::TempDir,
}

impl Person {
    pub(super) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// Runs what must succeed, and gives what it printed.
    pub(super) async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail, and gives the one line it said.
    pub(super) async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
        said
    }

    /// Runs with this on standard input.
    pub(super) async fn with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        child.wait_with_output().await.unwrap()
    }

    async fn login(&self, url: &str) {
        let input = format!("{PASSWORD}\n");
        let output = self.with_input(&["login", "--server", url], &input).await;
        assert!(output.status.success(), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains(PASSWORD));
    }
}

/// Serves on a port of loopback until the test ends.
async fn listen(server: &Server) -> String {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = server.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_goes_from_login_to_logout() {
    let server = Server::start().await;
    let url = listen(&server).await;
    let person = Person::new();
    let refused = person.fails(&["node", "list", "--server", &url]).await;
    assert!(refused.contains("plumbline login"), "{refused}");

    person.login(&url).await;
    let saved = person.home.path().join(".config/plumbline/login.json");
    let mode = std::fs::metadata(&saved).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    assert!(person.ok(&["node", "list"]).await.contains("no nodes"));
    person.ok(&["node", "add", "gpu-01", "52-54-00-AA-00-01"]).await;
    let list = person.ok(&["node", "list"]).await;
    assert!(list.contains("gpu-01") && list.contains("listed"), "{list}");
    let shown: Value = serde_json::from_str(&person.ok(&["node", "show", "gpu-01", "--json"]).await).unwrap();
    assert_eq!(shown["name"], "gpu-01");
    assert_eq!(shown["macs"][0], "52:54:00:aa:00:01");
    let taken = person.fails(&["node", "add", "gpu-01", "52:54:00:aa:00:02"]).await;
    assert!(taken.contains("exists already"), "{taken}");

    server.image("os", "debian-12-lab", "20260101T000000Z").await;
    server.image("agent", "plumbline-agent", "20260101T000000Z").await;
    assert!(person.ok(&["image", "list"]).await.contains("debian-12-lab"));
    let image = person.ok(&["image", "show", "debian-12-lab@20260101T000000Z"]).await;
    assert!(image.contains("3 pinned"), "{image}");
    let deploy = [
        "node",
        "deploy",
        "gpu-01",
        "--image",
        "debian-12-lab",
        "--disk-size-min",
        "400GB",
    ];
    assert!(person.ok(&deploy).await.contains("waiting for a deployer"));
    let deployments = person.ok(&["node", "deployments", "gpu-01", "--json"]).await;
    assert!(deployments.contains("400000000000"), "{deployments}");
    assert!(person.ok(&["drift", "show", "gpu-01"]).await.contains("unknown"));
    assert!(person.ok(&["drift", "list"]).await.contains("no differences"));
    person.ok(&["discovery", "arm", "10.77.0.0/24"]).await;
    assert!(person.ok(&["discovery", "list"]).await.contains("0 of 64"));
    person.ok(&["discovery", "disarm"]).await;
    person.ok(&["sightings"]).await;

    let asked = person.fails(&["node", "remove", "gpu-01"]).await;
    assert!(asked.contains("--yes"), "{asked}");
    person.ok(&["node", "remove", "gpu-01", "--yes"]).await;
    person.ok(&["logout"]).await;
    assert!(!saved.exists());
    person.fails(&["node", "list", "--server", &url]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_signs_in_with_the_password_that_was_set() {
    let server = Server::start().await;
    let url = listen(&server).await;
    let person = Person::new();
    person.login(&url).await;
    let output = person.with_input(&["user", "add", "tech"], "a horse of my own\n").await;
    assert!(output.status.success(), "{output:?}");
    let tech = Person::new();
    let login = ["login", "--user", "tech", "--server", &url];
    let wrong = tech.with_input(&login, "another horse\n").await;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        wrong.status.code() == Some(1) && said.contains("wrong name or password"),
        "{said}"
    );
    let right = tech.with_input(&login, "a horse of my own\n").await;
    assert!(right.status.success(), "{right:?}");
    let refused = tech.fails(&["node", "add", "n1", "52:54:00:aa:00:01"]).await;
    assert!(refused.contains("role viewer"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_acts_by_its_token_and_has_no_password() {
    let server = Server::start().await;
    let url = listen(&server).await;
    let person = Person::new();
    person.login(&url).await;
    person
        .ok(&["user", "add", "remediator", "--role", "admin", "--no-password"])
        .await;
    let token = person.ok(&["user", "token", "remediator", "--days", "366"]).await;
    let mut program = Person::new().command(&["node", "add", "n1", "52:54:00:aa:00:01", "--server", &url]);
    let output = program.env("PLUMBLINE_TOKEN", token.trim()).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let audit = person.ok(&["audit"]).await;
    assert!(audit.contains("remediator"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_followed_as_they_come() {
    let server = Server::start().await;
    let url = listen(&server).await;
    let person = Person::new();
    person.login(&url).await;
    let node = server.node("n1", "52:54:00:aa:00:01").await;
    let mut child = person.command(&["node", "events", "n1", "--follow"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.contains("node_added"), "{first}");
    for (kind, detail) in [("dhcp_offer", "10.77.0.20"), ("script", "evil\u{1b}[2J\nline")] {
        let event = store::NewEvent {
            node_id: Some(node),
            mac: None,
            kind,
            detail,
        };
        server.app.store.event_add(event).await.unwrap();
    }
    let limit = std::time::Duration::from_secs(30);
    for expected in [
        "dhcp_offer            10.77.0.20",
        "script                evil\\u{1b}[2J\\nline",
    ] {
        let line = tokio::time::timeout(limit, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(line.ends_with(expected), "{line}");
    }
    child.kill().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_what_to_do() {
    let person = Person::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = person.fails(&["node", "list", "--server", &url]).await;
    assert!(
        said.contains(&url) && said.contains("is `plumbline serve` running"),
        "{said}"
    );
}

#[tokio::test]
async fn a_wrong_command_line_is_2_and_a_wrong_configuration_names_its_key() {
    let person = Person::new();
    assert_eq!(person.run(&["node", "lst"]).await.status.code(), Some(2));
    assert_eq!(person.run(&[]).await.status.code(), Some(2));
    let path = person.home.path().join("plumbline.toml");
    let check = |path: &Path| {
        [
            "check-config".to_owned(),
            "--config".to_owned(),
            path.display().to_string(),
        ]
    };
    std::fs::write(&path, "data_dir = \"/srv/plumbline\"\n").unwrap();
    let arguments = check(&path);
    let sound = person.ok(&arguments.each_ref().map(String::as_str)).await;
    assert!(sound.contains("sound") && sound.contains("/srv/plumbline"), "{sound}");
    std::fs::write(&path, "[site]\nscan_interval_secs = 1\n").unwrap();
    let said = person.fails(&arguments.each_ref().map(String::as_str)).await;
    assert!(said.contains("site.scan_interval_secs"), "{said}");
}

#[tokio::test]
async fn completions_are_printed() {
    let person = Person::new();
    let script = person.ok(&["completion", "bash"]).await;
    assert!(script.contains("_plumbline"), "a script for bash");
}
