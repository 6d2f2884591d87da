//! Parts of files, for virtual media and loaders that read piece by piece.

use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use manifest::Digest;

use super::support::Listener;

const LOADER: &str = "/boot/v1/loaders/snponly.efi";

fn content() -> Vec<u8> {
    (0..50_000_u32).map(|index| (index ^ (index >> 8)) as u8).collect()
}

/// A loader, and a pack of the image store, of the same content.
async fn listener() -> (Listener, [String; 2]) {
    let listener = Listener::start(&[("snponly.efi", &content())], "").await;
    let pack = Bytes::from(content());
    let digest = Digest::of(&pack);
    listener.app.images.put_pack(digest, pack).await.unwrap();
    (listener, [LOADER.to_owned(), format!("/boot/v1/packs/{digest}")])
}

/// eks-anywhere#10484, bootimus#140: virtual media read one range at a time, and are told that they may.
#[tokio::test]
async fn eks_anywhere_10484_a_range_is_answered_with_that_part() {
    let (listener, paths) = listener().await;
    for path in paths {
        let whole = listener.get(&path, None).await;
        assert_eq!(
            (whole.status, whole.header("accept-ranges")),
            (StatusCode::OK, "bytes"),
            "{path}"
        );
        assert_eq!(whole.body, content());
        for (range, part, told) in [
            ("bytes=0-1023", 0..1024, "bytes 0-1023/50000"),
            ("bytes=-5", 49_995..50_000, "bytes 49995-49999/50000"),
            ("bytes=40000-", 40_000..50_000, "bytes 40000-49999/50000"),
            ("bytes=49999-60000", 49_999..50_000, "bytes 49999-49999/50000"),
        ] {
            let answer = listener.get(&path, Some(range)).await;
            assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT, "{path} {range}");
            assert_eq!(answer.header("content-range"), told);
            assert_eq!(answer.header("content-length"), part.len().to_string());
            assert_eq!(answer.body, content()[part]);
        }
        let size = listener.ask(Method::HEAD, &path, None).await;
        assert_eq!(
            (size.header("content-length"), size.header("accept-ranges")),
            ("50000", "bytes")
        );
    }
}

/// What a person has barred is served to nobody.
#[tokio::test]
async fn a_revoked_image_is_not_served() {
    let listener = Listener::start(&[("snponly.efi", &content())], "").await;
    let app = &listener.app;
    let manifest = manifest::Header::new(manifest::ManifestKind::Os, "debian", "1");
    let bytes = manifest::Manifest::new(manifest, Vec::new()).unwrap().encode().unwrap();
    let parts = plumbline::image::ImageParts {
        signature: Some(app.keys.image_signer().unwrap().unwrap().sign(&bytes, "x").unwrap()),
        manifest: bytes.clone().into(),
        packs: manifest::packs::PackIndex::default(),
        artifacts: Vec::new(),
    };
    let image = app.images.put_image(parts).await.unwrap();
    let path = format!("/boot/v1/images/{image}/manifest");
    assert_eq!(listener.get(&path, None).await.status, StatusCode::OK);
    let revocation = plumbline::image::trust::Revocation {
        at: time::OffsetDateTime::UNIX_EPOCH,
        by: "admin".to_owned(),
        reason: "a hole in its kernel".to_owned(),
    };
    app.keys.change(|trust| trust.revoke_image(image, revocation)).unwrap();
    let refused = listener.get(&path, None).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(String::from_utf8_lossy(&refused.body).contains("a hole in its kernel"));
}

/// ipxe#767: 32-bit iPXE sends `bytes=u-u`. It gets everything.
#[tokio::test]
async fn ipxe_767_a_nonsense_range_gets_everything() {
    let (listener, paths) = listener().await;
    for path in paths {
        for range in ["bytes=u-u", "bytes=5-4", "bytes=0-1,3-4", "lines=1-2"] {
            let answer = listener.get(&path, Some(range)).await;
            assert_eq!(answer.status, StatusCode::OK, "{path} {range}");
            assert_eq!(answer.body, content());
        }
    }
}

/// PyPXE#205: a range past the end is refused, with the size.
#[tokio::test]
async fn pypxe_205_a_range_past_the_end_is_refused_with_the_size() {
    let (listener, paths) = listener().await;
    for path in paths {
        for range in ["bytes=50000-", "bytes=4294967296-4294967299", "bytes=-0"] {
            let answer = listener.get(&path, Some(range)).await;
            assert_eq!(answer.status, StatusCode::RANGE_NOT_SATISFIABLE, "{path} {range}");
            assert_eq!(answer.header("content-range"), "bytes */50000");
            assert!(answer.body.is_empty());
        }
    }
}

/// ipxe#1023: where a rate is set, a loader comes no faster; without one it comes at once.
#[tokio::test]
async fn ipxe_1023_a_loader_comes_no_faster_than_the_rate() {
    let loaders: &[(&str, &[u8])] = &[("snponly.efi", &content())];
    let listener = Listener::start(loaders, "loader_bytes_per_sec_max = 100000").await;
    let begun = Instant::now();
    assert_eq!(listener.get(LOADER, None).await.body, content());
    assert!(
        begun.elapsed() >= Duration::from_millis(400),
        "{:?} for half a second's bytes",
        begun.elapsed()
    );
}

/// shim#696 by HTTP: garbage where GRUB's name should be.
#[tokio::test]
async fn shim_696_garbage_after_shim_is_grub_by_http_too() {
    let listener = Listener::start(&[("shimx64.efi", b"shim"), ("grubnetx64.efi", b"grub")], "").await;
    let garbage = "/boot/v1/loaders/Onboard%20NIC%20(IPv4)";
    assert_eq!(listener.get(garbage, None).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        listener.get("/boot/v1/loaders/EFI/BOOT/shimx64.efi", None).await.body,
        "shim"
    );
    assert_eq!(
        listener.get("/boot/v1/loaders/revocations.efi", None).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(listener.get(garbage, None).await.body, "grub");
    assert_eq!(
        listener
            .get("/boot/v1/loaders/..%2f..%2fetc%2fpasswd", None)
            .await
            .status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(listener.get("/boot/v1/loaders/grubx64.efi", None).await.body, "grub");
    assert_eq!(listener.get(garbage, None).await.status, StatusCode::NOT_FOUND);
}
