//! The same pull from the registry that Debian packages as `docker-registry`, where one is at hand: the path of the
//! program in `PLUMBLINE_DOCKER_REGISTRY`. Without it this says nothing.

use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use imports::registry::{Pull, pull};
use imports::{ImportError, Limits};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};

use super::support::{Images, Tar, gzip, is_root, paths, unpack};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn an_image_is_pulled_from_a_real_registry() {
    let Some(program) = std::env::var_os("PLUMBLINE_DOCKER_REGISTRY") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let config = folder.path().join("config.yml");
    let data = folder.path().join("data");
    let text = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let _running = Running(
        Command::new(program)
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let begun = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the registry does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let layer = Tar::new().file("file", &"content ".repeat(100_000)).finish();
    let images = Images::of_blobs(&[(
        "application/vnd.oci.image.layer.v1.tar+gzip",
        gzip(&layer),
        layer.clone(),
    )]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    });
    let name = format!("{address}/team/root");
    let reference: Reference = format!("{name}:1").parse().unwrap();
    client
        .store_auth_if_needed(reference.registry(), &RegistryAuth::Anonymous)
        .await;
    let manifest = images.manifests[0]["digest"].as_str().unwrap();
    for (digest, blob) in &images.blobs {
        let digest = format!("sha256:{digest}");
        if digest != manifest {
            client.push_blob(&reference, blob.clone(), &digest).await.unwrap();
        }
    }
    let body = images.blobs[manifest.trim_start_matches("sha256:")].clone();
    let kind = "application/vnd.oci.image.manifest.v1+json".parse().unwrap();
    client.push_manifest_raw(&reference, body, kind).await.unwrap();

    for reference in [format!("{name}:1"), format!("{name}@{manifest}")] {
        let target = folder.path().join(format!("layout-{}", reference.len()));
        // Half of the largest blob is there already: a real registry knows ranges.
        let (digest, blob) = images.blobs.iter().max_by_key(|(_, blob)| blob.len()).unwrap();
        std::fs::create_dir_all(target.join("blobs/sha256")).unwrap();
        let partial = target.join(format!("blobs/sha256/{digest}.partial"));
        std::fs::write(partial, &blob[..blob.len() / 2]).unwrap();
        let request = Pull {
            plain_http: true,
            ..Pull::new(reference, target)
        };
        let source = pull(&request, &Limits::default(), &mut |_| ControlFlow::Continue(()))
            .await
            .unwrap();
        if is_root() {
            assert_eq!(paths(&unpack(source).unwrap().root), ["file"]);
        }
    }
    let request = Pull {
        plain_http: true,
        ..Pull::new(format!("{name}:missing"), folder.path().join("missing"))
    };
    let error = pull(&request, &Limits::default(), &mut |_| ControlFlow::Continue(()))
        .await
        .unwrap_err();
    assert!(matches!(error, ImportError::Registry { attempts: 1, .. }), "{error}");
}
