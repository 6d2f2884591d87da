//! Pulling from a registry, a well-behaved one and others.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use imports::registry::{Credentials, Pull, pull};
use imports::{ImportError, Limits, Source, Stage};
use serde_json::json;

use super::support::{Behaviour, Images, Server, Tar, gzip, is_root, paths, unpack};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image with one layer of some 100 kB.
fn image() -> Images {
    let mut state = 1_u32;
    let noise: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
        char::from(b' ' + (state >> 16) as u8 % 90)
    })
    .take(120_000)
    .collect();
    let layer = Tar::new().file("file", &noise).finish();
    let upper = Tar::new().file("upper", "1").finish();
    Images::of_blobs(&[(GZIP, gzip(&layer), layer), (GZIP, gzip(&upper), upper)])
}

fn request(reference: String, folder: &Path) -> Pull {
    Pull {
        plain_http: true,
        pause: Duration::from_millis(1),
        silence_max: Duration::from_secs(20),
        ..Pull::new(reference, folder)
    }
}

async fn run(request: &Pull) -> Result<Source, ImportError> {
    pull(request, &Limits::default(), &mut |_| ControlFlow::Continue(())).await
}

/// Pulls `team/root:1` from a registry of this behaviour.
async fn from(images: &Images, behaviour: Behaviour) -> (Result<Source, ImportError>, Vec<String>, tempfile::TempDir) {
    let server = Server::start(images, behaviour);
    let folder = tempfile::tempdir().unwrap();
    let result = run(&request(server.reference(":1"), folder.path())).await;
    (result, server.requests(), folder)
}

fn assert_complete(source: Source) {
    if is_root() {
        assert_eq!(paths(&unpack(source).unwrap().root), ["file", "upper"]);
    }
}

#[tokio::test]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let images = image();
    let server = Server::start(&images, Behaviour::default());
    let digest = images.manifests[0]["digest"].as_str().unwrap();
    for rest in [":1".to_owned(), format!("@{digest}")] {
        let folder = tempfile::tempdir().unwrap();
        let reference = server.reference(&rest);
        let mut last = None;
        let request = request(reference.clone(), folder.path());
        let source = pull(&request, &Limits::default(), &mut |progress| {
            last = Some(progress);
            ControlFlow::Continue(())
        })
        .await
        .unwrap();
        assert_eq!(last.unwrap().stage, Stage::Pull);
        if is_root() {
            let root = unpack(source).unwrap();
            assert_eq!(paths(&root.root), ["file", "upper"]);
            assert_eq!(root.imported.origin.name, Some(reference));
            assert_eq!(root.imported.image.unwrap().digest, digest);
        }
    }
}

#[tokio::test]
async fn linux_amd64_is_pulled_from_an_index() {
    let mut images = image();
    let mut right = images.manifests[0].clone();
    right["platform"] = json!({"os": "linux", "architecture": "amd64"});
    let layer = Tar::new().file("arm", "").finish();
    let mut wrong = images.image("linux", "arm64", &[(GZIP, gzip(&layer), layer)]);
    wrong["platform"] = json!({"os": "linux", "architecture": "arm64", "variant": "v8"});
    let index = images.index(&[wrong.clone(), right]);
    images.manifests = vec![index];
    let (source, ..) = from(&images, Behaviour::default()).await;
    assert!(source.is_ok());
    let (result, _, folder) = from(&images, Behaviour::default()).await;
    assert_complete(result.unwrap());
    drop(folder);
    let index = images.index(&[wrong]);
    images.manifests = vec![index];
    let (result, ..) = from(&images, Behaviour::default()).await;
    let error = result.unwrap_err();
    assert!(
        matches!(&error, ImportError::Platform { found, .. } if found == &["linux/arm64/v8"]),
        "{error}"
    );
}

#[tokio::test]
async fn a_pull_goes_on_where_the_connection_broke() {
    let images = image();
    let behaviour = Behaviour {
        cut_bytes: 30_000,
        cuts: 3,
        ..Behaviour::default()
    };
    let (result, requests, _folder) = from(&images, behaviour).await;
    assert_complete(result.unwrap());
    let ranges: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.split_once("bytes=").map(|(_, range)| range))
        .collect();
    assert!(ranges.contains(&"30000-") && ranges.contains(&"60000-"), "{ranges:?}");
}

#[tokio::test]
async fn a_registry_without_ranges_starts_over() {
    let behaviour = Behaviour {
        cut_bytes: 30_000,
        cuts: 2,
        knows_no_ranges: true,
        ..Behaviour::default()
    };
    let (result, _, _folder) = from(&image(), behaviour).await;
    assert_complete(result.unwrap());
}

/// A registry that never gets through: the pull fails after its attempts, says so, and goes on from there next time.
#[tokio::test]
async fn a_registry_that_stops_in_the_middle_is_an_error_and_what_came_stays() {
    let images = image();
    let folder = tempfile::tempdir().unwrap();
    {
        let behaviour = Behaviour {
            cut_bytes: 0,
            cuts: usize::MAX,
            ..Behaviour::default()
        };
        let server = Server::start(&images, behaviour);
        let error = run(&request(server.reference(":1"), folder.path())).await.unwrap_err();
        assert!(matches!(error, ImportError::Registry { attempts: 5, .. }), "{error}");
        assert!(
            !folder.path().join("index.json").exists(),
            "no layout that looks finished"
        );
        assert!(
            unpack(Source::Layout {
                path: folder.path().to_owned(),
                name: None
            })
            .is_err()
        );
    }
    // The largest blob, half of it.
    let (digest, blob) = images.blobs.iter().max_by_key(|(_, blob)| blob.len()).unwrap();
    let partial = folder.path().join(format!("blobs/sha256/{digest}.partial"));
    std::fs::write(&partial, &blob[..50_000]).unwrap();
    let server = Server::start(&images, Behaviour::default());
    let source = run(&request(server.reference(":1"), folder.path())).await.unwrap();
    assert!(
        server
            .requests()
            .iter()
            .any(|request| request.ends_with("bytes=50000-"))
    );
    assert_complete(source);
    // And once more: nothing of it is fetched again.
    let before = server.requests().len();
    run(&request(server.reference(":1"), folder.path())).await.unwrap();
    let again = server.requests()[before..]
        .iter()
        .filter(|request| request.contains("/blobs/"))
        .count();
    assert_eq!(again, 0);
}

#[tokio::test]
async fn a_blob_that_is_not_what_was_asked_for_is_refused_and_forgotten() {
    let behaviour = Behaviour {
        lies: true,
        ..Behaviour::default()
    };
    let (result, _, folder) = from(&image(), behaviour).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ImportError::Digest { .. }), "{error}");
    let left = std::fs::read_dir(folder.path().join("blobs/sha256")).unwrap().count();
    assert_eq!(left, 0);
    assert!(!folder.path().join("index.json").exists());
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_and_a_clear_no_is_not() {
    let images = image();
    let busy = Behaviour {
        busy: 3,
        ..Behaviour::default()
    };
    let (result, _, _folder) = from(&images, busy).await;
    assert_complete(result.unwrap());

    let server = Server::start(&images, Behaviour::default());
    let folder = tempfile::tempdir().unwrap();
    let error = run(&request(server.reference(":2"), folder.path())).await.unwrap_err();
    assert!(error.to_string().contains("manifest unknown"), "{error}");
    let asked = server
        .requests()
        .iter()
        .filter(|request| request.contains("/manifests/"))
        .count();
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_silent_registry_is_given_up() {
    let server = Server::start(
        &image(),
        Behaviour {
            silent: true,
            ..Behaviour::default()
        },
    );
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(server.reference(":1"), folder.path());
    request.silence_max = Duration::from_millis(200);
    request.attempts_max = 2;
    let error = run(&request).await.unwrap_err();
    assert!(matches!(error, ImportError::Registry { attempts: 2, .. }), "{error}");
}

#[tokio::test]
async fn credentials_are_used_as_the_registry_wants_them() {
    for tokens in [false, true] {
        let behaviour = Behaviour {
            account: Some(("robot", "secret-word")),
            tokens,
            ..Behaviour::default()
        };
        let server = Server::start(&image(), behaviour);
        let folder = tempfile::tempdir().unwrap();
        let mut request = request(server.reference(":1"), folder.path());
        for wrong in [None, Some("another-word")] {
            request.credentials = wrong.map(|password| Credentials {
                user: "robot".to_owned(),
                password: password.to_owned(),
            });
            let error = run(&request).await.unwrap_err();
            assert!(matches!(error, ImportError::Unauthorized { .. }), "{error}");
        }
        request.credentials = Some(Credentials {
            user: "robot".to_owned(),
            password: "secret-word".to_owned(),
        });
        assert!(!format!("{request:?}").contains("secret-word"));
        assert_complete(run(&request).await.unwrap());
    }
}

/// Plain HTTP is spoken only when the caller says so.
#[tokio::test]
async fn https_is_the_default() {
    let server = Server::start(&image(), Behaviour::default());
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(server.reference(":1"), folder.path());
    request.plain_http = false;
    request.attempts_max = 1;
    assert!(matches!(run(&request).await, Err(ImportError::Registry { .. })));
    assert!(!server.requests().iter().any(|request| request.starts_with("GET /v2/")));
}

#[tokio::test]
async fn a_pull_stops_when_told_to() {
    let server = Server::start(&image(), Behaviour::default());
    let folder = tempfile::tempdir().unwrap();
    let request = request(server.reference(":1"), folder.path());
    let result = pull(&request, &Limits::default(), &mut |_| ControlFlow::Break(())).await;
    assert!(matches!(result, Err(ImportError::Stopped)));
    assert!(!folder.path().join("index.json").exists());
}

/// A server runs pulls as tasks of their own.
#[test]
fn a_pull_may_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let request = request("registry.invalid/a:1".to_owned(), Path::new("/nowhere"));
    is_send(run(&request));
}

#[tokio::test]
async fn what_is_no_reference_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // None of these is a name of this machine, or of any other: nothing is asked.
    for text in [
        "",
        "root",
        "team/root:1",
        "host.invalid/UPPER:1",
        "host.invalid/a@sha256:12",
    ] {
        let error = run(&request(text.to_owned(), folder.path())).await.unwrap_err();
        assert!(matches!(error, ImportError::Reference { .. }), "{text}: {error}");
    }
}
