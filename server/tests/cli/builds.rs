//! Builds by the real server with the real program, of a recipe whose mirror answers nothing: a build that would go on
//! for ever, and needs no network.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use testkit::{TestDatabase, wait_for};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::program::Person;

const LIMIT: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A mirror that takes connections and says nothing. Gives how many it took.
fn deaf_mirror() -> (SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let taken = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let count = taken.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept() {
            held.push(connection);
            count.store(held.len(), std::sync::atomic::Ordering::SeqCst);
        }
    });
    (address, taken)
}

/// Starts the server; the password of its administrator, if this is its first start.
async fn serve(config: &Path, url: &str) -> (Child, Option<String>) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["serve", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = server.stdout.take().unwrap();
    let password = tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, password)) = line.split_once("password: ") {
                return Some(password.to_owned());
            }
        }
        None
    });
    let address = url.trim_start_matches("http://").to_owned();
    let what = "the server to answer";
    wait_for(LIMIT, what, async || {
        tokio::net::TcpStream::connect(&address).await.is_ok()
    })
    .await
    .unwrap();
    let password = tokio::time::timeout(Duration::from_secs(1), password).await;
    (server, password.ok().and_then(Result::unwrap))
}

/// Processes that have this text in their command line.
fn processes_with(text: &str) -> usize {
    let items = std::fs::read_dir("/proc").unwrap().flatten();
    let command_lines = items.filter_map(|item| std::fs::read(item.path().join("cmdline")).ok());
    command_lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

async fn newest(person: &Person) -> Value {
    let listed: Value = serde_json::from_str(&person.ok(&["build", "list", "--json"]).await).unwrap();
    listed[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_ends_with_its_server_and_by_a_persons_wish() {
    let has_mmdebstrap = Path::new("/usr/bin/mmdebstrap").exists();
    if !rustix::process::geteuid().is_root() || !has_mmdebstrap {
        eprintln!("skipped: building needs root and mmdebstrap");
        return;
    }
    let database = TestDatabase::create().await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mirror, taken) = deaf_mirror();
    let taken = move || taken.load(std::sync::atomic::Ordering::SeqCst);
    let recipe = folder.path().join("recipes/tiny");
    std::fs::create_dir_all(&recipe).unwrap();
    let text = format!(
        "kind: deployer\nname: tiny\n\
         distribution: {{suite: bookworm, components: [main], mirror: 'http://{mirror}/debian'}}\n\
         kernel: {{package: linux-image-amd64}}\npackages: []\nprograms: []\nmodules: {{}}\n"
    );
    std::fs::write(recipe.join("image.yaml"), text).unwrap();
    let agent = folder.path().join("agent");
    std::fs::write(&agent, "").unwrap();
    let (people, agents) = (free_port(), free_port());
    let config = folder.path().join("plumbline.toml");
    let text = format!(
        "data_dir = {data:?}\n[database]\nurl = \"{}\"\n[people]\nlisten = \"{people}\"\n[agents]\nlisten = \"{agents}\"\n\
         [images]\nrecipes_dir = {:?}\nagent_binary = {agent:?}\n[images.builds]\nfree_bytes_min = 0\n",
        database.url,
        recipe.parent().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let url = format!("http://{people}");
    let (mut server, password) = serve(&config, &url).await;
    let person = Person::new();
    let login = ["login", "--server", &url];
    let done = person.with_input(&login, &format!("{}\n", password.unwrap())).await;
    assert!(done.status.success(), "{done:?}");

    // Killed in the middle: nothing of the build lives on, and the next server knows what became of it.
    assert!(person.ok(&["build", "recipes"]).await.contains("good"));
    person.ok(&["build", "start", "tiny"]).await;
    wait_for(LIMIT, "the build to ask its mirror", async || taken() > 0)
        .await
        .unwrap();
    let place = data.to_str().unwrap();
    assert!(processes_with(&format!("{place}/build")) > 0, "mmdebstrap runs");
    server.kill().await.unwrap();
    let what = "all processes of the build to end";
    wait_for(LIMIT, what, async || processes_with(place) == 0)
        .await
        .unwrap();
    let (_server, _) = serve(&config, &url).await;
    wait_for(LIMIT, "the build to count as failed", async || {
        newest(&person).await["state"] == "failed"
    })
    .await
    .unwrap();
    assert_eq!(
        newest(&person).await["error"],
        "interrupted: the server ended while it ran"
    );
    let left = async || std::fs::read_dir(data.join("build")).unwrap().count();
    wait_for(LIMIT, "only the lock file to be left", async || left().await == 1)
        .await
        .unwrap();

    // Cancelled: whoever follows it hears so.
    let before = taken();
    let mut follows = person.command(&["build", "start", "tiny", "--follow"]);
    let follows = tokio::spawn(async move { follows.output().await.unwrap() });
    wait_for(LIMIT, "the build to ask its mirror", async || taken() > before)
        .await
        .unwrap();
    let wrong = person.fails(&["build", "cancel", "ffff"]).await;
    assert!(wrong.contains("no build begins with"), "{wrong}");
    person.ok(&["build", "cancel"]).await;
    let followed = follows.await.unwrap();
    let said = String::from_utf8_lossy(&followed.stderr).into_owned();
    assert!(
        followed.status.code() == Some(1) && said.contains("the build was cancelled by admin"),
        "{said}"
    );
    let log = String::from_utf8_lossy(&followed.stdout).into_owned();
    assert!(
        log.contains("packages   ") && log.contains("end        cancelled"),
        "{log}"
    );
    assert_eq!(left().await, 1, "its tree is gone");
    assert!(person.ok(&["image", "list"]).await.contains("no images"));
    assert_eq!(
        person.ok(&["build", "log"]).await.lines().last(),
        Some(log.lines().rfind(|line| line.contains("end   ")).unwrap())
    );
}
