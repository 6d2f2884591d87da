//! Builds by the server. What builds here is a script that says what a real build says; the queue, the log, the limits
//! and the ends are the server's own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use manifest::{Digest, Header, ManifestKind};
use plumbline::config::Config;
use serde_json::{Value, json};
use testkit::wait_for;
use tokio_util::sync::CancellationToken;

use super::Server;

const LIMIT: Duration = Duration::from_secs(60);
const RECIPE: &str = "kind: os\nname: lab\ndistribution: {suite: bookworm, components: [main]}\n\
    kernel: {package: linux-image-amd64}\npackages: [systemd]\n";

/// A server with the recipes `lab`, `other` and `broken`, and a script that builds.
struct Builds {
    server: Server,
    folder: tempfile::TempDir,
    cancel: CancellationToken,
}

impl Builds {
    /// The script gets the arguments of `plumbline` and the folder `$FOLDER`, where it may leave something.
    async fn start(script: &str, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("lab", RECIPE.to_owned()),
            ("other", RECIPE.replace("lab", "other")),
            ("broken", RECIPE.replace("packages:", "package:")),
        ] {
            let recipe = folder.path().join("recipes").join(name);
            std::fs::create_dir_all(&recipe).unwrap();
            std::fs::write(recipe.join("image.yaml"), text).unwrap();
        }
        let program = folder.path().join("builder");
        let script = format!("#!/bin/sh\nFOLDER={}\n{script}\n", folder.path().display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let change = |config: &mut Config| {
            config.images.recipes_dir = Some(folder.path().join("recipes"));
            config.images.builds.free_bytes_min = 0;
            change(config);
        };
        Self {
            server: Server::start_as(change, Some(&program)).await,
            folder,
            cancel: CancellationToken::new(),
        }
    }

    /// Begins to run builds.
    fn run(&self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(plumbline::app::builds::run(
            self.server.app.clone(),
            self.cancel.clone(),
        ))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Asks for a build; its id.
    async fn ask(&self, recipe: &str) -> String {
        let answer = self.server.post("/api/v1/builds", json!({ "recipe": recipe })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.body["id"].as_str().unwrap().to_owned()
    }

    async fn build(&self, id: &str) -> Value {
        self.server.get(&format!("/api/v1/builds/{id}")).await.body
    }

    /// Waits until a build is in this state.
    async fn until(&self, id: &str, state: &str) -> Value {
        wait_for(LIMIT, &format!("build {id} to be {state}"), async || {
            self.build(id).await["state"] == state
        })
        .await
        .unwrap();
        self.build(id).await
    }

    async fn cancel_build(&self, id: &str) -> super::support::Answer {
        let path = format!("/api/v1/builds/{id}/cancel");
        self.server
            .ask(Method::POST, &path, Some(&self.server.admin), None)
            .await
    }

    /// All of a build's log, read in pieces.
    async fn log(&self, id: &str) -> String {
        let (mut text, mut after) = (String::new(), 0);
        loop {
            let piece = self
                .server
                .get(&format!("/api/v1/builds/{id}/log?after={after}"))
                .await
                .body;
            text.push_str(piece["text"].as_str().unwrap());
            after = piece["next"].as_u64().unwrap();
            if piece["text"] == "" {
                assert_eq!(piece["is_complete"], true, "{piece}");
                return text;
            }
        }
    }

    async fn audited(&self, action: &str) -> usize {
        let audit = self.server.get("/api/v1/audit").await.body;
        audit
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["action"] == action)
            .count()
    }
}

impl Drop for Builds {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_goes_from_the_queue_to_an_image() {
    let script = r#"
        echo "$@" > "$FOLDER/arguments"
        echo '{"event":"report","stage":"packages","detail":"2 packages"}'
        echo '{"event":"count","stage":"packages","done":1,"total":2,"unit":"packages"}'
        echo '{"event":"output","stage":"packages","line":"Setting up systemd"}'
        echo 'a warning' >&2
        while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done
        printf '{"event":"built","digest":"%s","name":"lab","version":"1"}\n' "$(cat "$FOLDER/go")"
    "#;
    let builds = Builds::start(script, |_| {}).await;
    builds.run();
    let refused = builds
        .server
        .ask(Method::POST, "/api/v1/builds", Some(&builds.server.viewer), None)
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let id = builds.ask("lab").await;
    let what = "what it does to be told";
    wait_for(LIMIT, what, async || builds.build(&id).await["count"]["done"] == 1)
        .await
        .unwrap();
    let build = builds.build(&id).await;
    assert!(
        build["state"] == "running" && build["stage"] == "packages" && build["count"]["total"] == 2,
        "{build}"
    );
    assert_eq!(build["requested_by"], "admin");
    let image = builds
        .server
        .image_of(
            Header::new(ManifestKind::Os, "lab", "1"),
            &[("/etc/motd", 0o644, "hello\n")],
        )
        .await;
    std::fs::write(builds.path("going"), image.to_string()).unwrap();
    std::fs::rename(builds.path("going"), builds.path("go")).unwrap();
    let build = builds.until(&id, "done").await;
    assert_eq!(build["image"], image.to_string());
    assert!(build["error"].is_null() && build["finished_at"].is_string(), "{build}");
    let log = builds.log(&id).await;
    for expected in ["packages   Setting up systemd\n", " a warning\n", "end        done: "] {
        assert!(log.contains(expected), "{expected} is in {log}");
    }
    assert_eq!(build["log_bytes"], log.len());
    let arguments = std::fs::read_to_string(builds.path("arguments")).unwrap();
    let recipe = builds.path("recipes/lab");
    assert!(
        arguments.starts_with("image build --json-progress --data-dir "),
        "{arguments}"
    );
    assert!(
        arguments.trim_end().ends_with(&format!("-- {}", recipe.display())),
        "{arguments}"
    );
    assert_eq!(builds.audited("build_requested").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_wait_for_each_other_and_the_queue_has_an_end() {
    let script = r#"
        mkdir "$FOLDER/one" || touch "$FOLDER/two-at-once"
        while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done
        rmdir "$FOLDER/one"
        printf '%s\n' '{"event":"failed","error":"no mirror\nnot one"}'
        exit 1
    "#;
    let builds = Builds::start(script, |config| config.images.builds.queued_max = 2).await;
    builds.run();
    let first = builds.ask("lab").await;
    builds.until(&first, "running").await;
    let (second, third) = (builds.ask("other").await, builds.ask("lab").await);
    let full = builds.server.post("/api/v1/builds", json!({ "recipe": "lab" })).await;
    assert_eq!(full.status, StatusCode::CONFLICT, "{full:?}");
    assert!(full.error().contains("2 builds wait already"), "{full:?}");
    let cancelled = builds.cancel_build(&second).await.body;
    assert!(
        cancelled["state"] == "cancelled" && cancelled["started_at"].is_null(),
        "{cancelled}"
    );
    assert_eq!(cancelled["cancelled_by"], "admin");
    std::fs::write(builds.path("go"), "").unwrap();
    for id in [&first, &third] {
        assert_eq!(builds.until(id, "failed").await["error"], "no mirror\nnot one");
    }
    assert!(!builds.path("two-at-once").exists());
    assert_eq!(builds.build(&second).await["state"], "cancelled");
    let late = builds.cancel_build(&first).await;
    assert!(
        late.status == StatusCode::CONFLICT && late.error().contains("is failed"),
        "{late:?}"
    );
    assert_eq!(builds.audited("build_cancelled").await, 1);
    let listed = builds.server.get("/api/v1/builds").await.body;
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|build| build["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, [&third, &second, &first], "newest first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_ends_and_leaves_nothing() {
    // As a real build does, it ends when its input is closed; what it had begun stays behind.
    let script = r#"
        mkdir -p "$5/build/tree/usr"; touch "$FOLDER/begun"; cat
        echo '{"event":"failed","error":"the build was stopped"}'; exit 1
    "#;
    let builds = Builds::start(script, |_| {}).await;
    builds.run();
    let id = builds.ask("lab").await;
    wait_for(LIMIT, "the build to begin", async || builds.path("begun").exists())
        .await
        .unwrap();
    assert_eq!(builds.cancel_build(&id).await.status, StatusCode::OK);
    let build = builds.until(&id, "cancelled").await;
    assert!(build["error"].is_null() && build["image"].is_null(), "{build}");
    assert!(
        !builds.server.app.config.data_dir.join("build/tree").exists(),
        "its tree is gone"
    );
    assert_eq!(builds.server.get("/api/v1/images").await.body, json!([]));
    assert_eq!(builds.audited("build_cancelled").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_with_its_reason() {
    let nothing = Digest::of(b"nothing");
    let made_up = format!(r#"echo '{{"event":"built","digest":"{nothing}","name":"x","version":"1"}}'"#);
    for (script, change, expected) in [
        (
            "echo '{\"event\":\"report\",\"stage\":\"walk\",\"detail\":\"9 paths\"}'; exit 7".to_owned(),
            (|_| {}) as fn(&mut Config),
            "(exit status: 7) without saying why, at: walk 9 paths",
        ),
        (
            "cat; exit 1".to_owned(),
            |config| config.images.builds.secs_max = 1,
            "took longer than 1 s (images.builds.secs_max)",
        ),
        (
            String::new(),
            |config| config.images.builds.free_bytes_min = 1 << 60,
            "expected at least 1152921504606846976 (images.builds.free_bytes_min)",
        ),
        (made_up, |_| {}, "which is not in the store"),
    ] {
        let builds = Builds::start(&script, change).await;
        builds.run();
        let id = builds.ask("lab").await;
        let build = builds.until(&id, "failed").await;
        let error = build["error"].as_str().unwrap();
        assert!(error.contains(expected), "{error} should say {expected}");
        let log = builds.log(&id).await;
        assert!(log.contains(expected), "the log says it, too: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_ends_its_build() {
    let builds = Builds::start("touch \"$FOLDER/begun\"; cat; exit 1", |_| {}).await;
    let runner = builds.run();
    let id = builds.ask("lab").await;
    wait_for(LIMIT, "the build to begin", async || builds.path("begun").exists())
        .await
        .unwrap();
    let waits = builds.ask("other").await;
    builds.cancel.cancel();
    runner.await.unwrap();
    let build = builds.build(&id).await;
    assert!(build["error"].as_str().unwrap().starts_with("interrupted: "), "{build}");
    assert_eq!(
        builds.build(&waits).await["state"],
        "queued",
        "it waits for the next server"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_knows_that_nothing_runs() {
    let builds = Builds::start("exit 1", |_| {}).await;
    let id = builds.ask("lab").await;
    // As a server leaves it that was killed.
    builds.server.app.store.build_take_next().await.unwrap().unwrap();
    let left = builds.server.app.config.data_dir.join("build/left/usr");
    std::fs::create_dir_all(&left).unwrap();
    builds.run();
    let build = builds.until(&id, "failed").await;
    assert!(build["error"].as_str().unwrap().starts_with("interrupted: "), "{build}");
    wait_for(LIMIT, "leftovers to be removed", async || !left.exists())
        .await
        .unwrap();
}

#[tokio::test]
async fn only_recipes_of_the_folder_that_are_right_are_built() {
    let builds = Builds::start("exit 1", |_| {}).await;
    let recipes = builds.server.get("/api/v1/recipes").await.body;
    let told: Vec<(&str, bool)> = recipes
        .as_array()
        .unwrap()
        .iter()
        .map(|recipe| (recipe["name"].as_str().unwrap(), recipe["error"].is_null()))
        .collect();
    assert_eq!(told, [("broken", false), ("lab", true), ("other", true)]);
    assert!(
        recipes[0]["error"].as_str().unwrap().contains("5 | package: [systemd]"),
        "{recipes}"
    );
    for (recipe, status, expected) in [
        (
            "../recipes/lab",
            StatusCode::UNPROCESSABLE_ENTITY,
            "expected at most 64 of",
        ),
        ("/etc", StatusCode::UNPROCESSABLE_ENTITY, "expected at most 64 of"),
        ("nothing", StatusCode::NOT_FOUND, "nothing"),
        ("broken", StatusCode::UNPROCESSABLE_ENTITY, "image.yaml:5:1: "),
    ] {
        let answer = builds.server.post("/api/v1/builds", json!({ "recipe": recipe })).await;
        assert!(
            answer.status == status && answer.error().contains(expected),
            "{recipe}: {answer:?}"
        );
    }
    let none = Server::start().await;
    assert_eq!(none.get("/api/v1/recipes").await.body, json!([]));
    let answer = none.post("/api/v1/builds", json!({ "recipe": "lab" })).await;
    assert!(
        answer.status == StatusCode::CONFLICT && answer.error().contains("images.recipes_dir"),
        "{answer:?}"
    );
}
