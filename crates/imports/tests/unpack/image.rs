//! Choosing and checking images: layouts, archives of `docker save`.

use imports::{ImportError, Limits, OriginKind, Source};
use serde_json::{Value, json};

use super::support::{Images, Tar, file, gzip, is_root, paths, sha256, unpack, unpack_with};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, "content").finish()
}

fn error_of(images: &Images) -> ImportError {
    unpack(images.layout().source()).map(|_| ()).unwrap_err()
}

#[test]
fn a_layout_is_unpacked_and_described() {
    if !is_root() {
        return;
    }
    let (one, two, three) = (layer("one"), layer("two"), layer("three"));
    let images = Images::of_blobs(&[
        (GZIP, gzip(&one), one),
        (ZSTD, zstd::encode_all(two.as_slice(), 3).unwrap(), two),
        (
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
            gzip(&three),
            three.clone(),
        ),
    ]);
    let (layout, archive) = (images.layout(), images.archive());
    let sources = [
        Source::detect(layout.path(), &Limits::default()),
        Source::detect(&archive.path, &Limits::default()),
    ];
    for (source, kind) in sources
        .into_iter()
        .zip([OriginKind::OciLayout, OriginKind::ImageArchive])
    {
        let root = unpack(source.unwrap()).unwrap();
        assert_eq!(paths(&root.root), ["one", "three", "two"]);
        assert_eq!(root.imported.origin.kind, kind);
        let image = root.imported.image.unwrap();
        assert_eq!(image.digest, images.manifests[0]["digest"].as_str().unwrap());
        assert_eq!((image.os.as_str(), image.architecture.as_str()), ("linux", "amd64"));
        assert_eq!(image.labels["org.opencontainers.image.title"], "a root");
        assert_eq!(
            (image.env, image.entrypoint),
            (vec!["PATH=/usr/bin".to_owned()], vec!["/sbin/init".to_owned()])
        );
        assert_eq!(image.layers.len(), 3);
        assert_eq!(image.layers[2].diff_id, format!("sha256:{}", sha256(&three)));
        assert_eq!(root.imported.entries, 3);
    }
}

#[test]
fn linux_amd64_is_chosen_from_an_index_and_others_are_named() {
    if !is_root() {
        return;
    }
    let mut images = Images::default();
    let plain = "application/vnd.oci.image.layer.v1.tar";
    let mut platforms = Vec::new();
    for (architecture, name) in [("arm64", "arm"), ("amd64", "right")] {
        let mut manifest = images.image("linux", architecture, &[(plain, layer(name), layer(name))]);
        manifest["platform"] = json!({"os": "linux", "architecture": architecture});
        platforms.push(manifest);
    }
    // As builders add it: what was built from what.
    let mut attestation = images.image("unknown", "unknown", &[(plain, layer("no"), layer("no"))]);
    attestation["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    platforms.push(attestation);
    let mut both = images.clone();
    both.manifests = platforms.clone();
    let layout = both.layout();
    assert_eq!(paths(&unpack(layout.source()).unwrap().root), ["right"]);

    // One level deeper, as `docker buildx` writes it.
    let mut nested = images.clone();
    let index = nested.index(&platforms);
    nested.manifests = vec![index];
    let layout = nested.layout();
    assert_eq!(paths(&unpack(layout.source()).unwrap().root), ["right"]);

    let mut foreign = images.clone();
    foreign.manifests = vec![platforms[0].clone(), platforms[2].clone()];
    let layout = foreign.layout();
    let error = unpack(layout.source()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, ImportError::Platform { found, .. } if found == &["linux/arm64"]),
        "{error}"
    );

    // Without a word in the index the configuration says it.
    let mut silent = images.clone();
    let mut manifest = platforms[0].clone();
    manifest.as_object_mut().unwrap().remove("platform");
    silent.manifests = vec![manifest];
    let layout = silent.layout();
    let error = unpack(layout.source()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, ImportError::Platform { found, .. } if found == &["linux/arm64"]),
        "{error}"
    );
}

#[test]
fn one_of_several_images_must_be_named() {
    if !is_root() {
        return;
    }
    let mut images = Images::default();
    let plain = "application/vnd.oci.image.layer.v1.tar";
    for name in ["a", "b"] {
        let mut manifest = images.image("linux", "amd64", &[(plain, layer(name), layer(name))]);
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": format!("v-{name}")});
        images.manifests.push(manifest);
    }
    let layout = images.layout();
    let error = unpack(layout.source()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, ImportError::Ambiguous { found, .. } if found == &["v-a", "v-b"]),
        "{error}"
    );
    let root = unpack(layout.named(Some("v-b"))).unwrap();
    assert_eq!(paths(&root.root), ["b"]);
    assert_eq!(root.imported.origin.name.as_deref(), Some("v-b"));
    let error = unpack(layout.named(Some("v-c"))).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::NoSuchImage { .. }), "{error}");
}

/// Each blob that is not what the document above it says.
#[test]
fn every_blob_is_checked() {
    if !is_root() {
        return;
    }
    let good = Images::of(&[layer("a")]);
    let digest_of = |value: &Value| {
        value["digest"]
            .as_str()
            .unwrap()
            .trim_start_matches("sha256:")
            .to_owned()
    };
    let manifest_digest = digest_of(&good.manifests[0]);
    let manifest: Value = serde_json::from_slice(&good.blobs[&manifest_digest]).unwrap();
    let blobs = [
        manifest_digest.clone(),
        digest_of(&manifest["config"]),
        digest_of(&manifest["layers"][0]),
    ];
    for digest in blobs {
        let mut changed = good.clone();
        let blob = changed.blobs.get_mut(&digest).unwrap();
        *blob.last_mut().unwrap() ^= 1;
        let layout = changed.layout();
        match unpack(layout.source()).map(|_| ()) {
            Err(ImportError::Digest { expected, .. }) => assert_eq!(expected, format!("sha256:{digest}")),
            other => panic!("{other:?}"),
        }
        let mut longer = good.clone();
        longer.blobs.get_mut(&digest).unwrap().push(b'\n');
        let layout = longer.layout();
        match unpack(layout.source()).map(|_| ()) {
            Err(ImportError::Size { expected, found, .. }) => assert_eq!(found, expected + 1),
            other => panic!("{other:?}"),
        }
        let mut without = good.clone();
        without.blobs.remove(&digest);
        let layout = without.layout();
        let error = unpack(layout.source()).map(|_| ()).unwrap_err();
        assert!(
            matches!(&error, ImportError::Absent { name, .. } if name.contains(&digest)),
            "{error}"
        );
    }
}

/// The blob may be right and hold another archive than the image was made of.
#[test]
fn the_uncompressed_archive_is_checked_too() {
    if !is_root() {
        return;
    }
    let images = Images::of_blobs(&[(GZIP, gzip(&layer("a")), layer("b"))]);
    let layout = images.layout();
    match unpack(layout.source()).map(|_| ()) {
        Err(ImportError::Digest { blob, expected, .. }) => {
            assert!(blob.contains("uncompressed"), "{blob}");
            assert_eq!(expected, format!("sha256:{}", sha256(&layer("b"))));
        }
        other => panic!("{other:?}"),
    }
}

/// A layer's digest says that it is complete, whatever its writer forgot; no digest makes half a file whole.
#[test]
fn a_layer_without_its_end_is_taken_and_one_with_half_a_file_is_not() {
    if !is_root() {
        return;
    }
    let whole = Tar::new().file("a", "1").file("b", "12345").unfinished();
    let of = |layer: &[u8]| {
        let layout = Images::of(&[layer.to_vec()]).layout();
        unpack(layout.source()).map(|root| paths(&root.root))
    };
    for cut in [0, 507] {
        assert_eq!(of(&whole[..whole.len() - cut]).unwrap(), ["a", "b"], "{cut}");
    }
    for cut in [508, 512, 600] {
        let error = of(&whole[..whole.len() - cut]).unwrap_err();
        assert!(matches!(error, ImportError::Truncated { .. }), "{cut}: {error}");
    }
}

#[test]
fn layers_and_artifacts_of_other_kinds_are_named() {
    if !is_root() {
        return;
    }
    let of = |media_type: &str| {
        let layout = Images::of_blobs(&[(media_type, layer("a"), layer("a"))]).layout();
        unpack(layout.source()).map(|_| ()).unwrap_err()
    };
    let error = of("application/vnd.oci.image.layer.v1.tar+gzip+encrypted");
    assert!(matches!(error, ImportError::Encrypted { .. }), "{error}");
    let error = of("application/vnd.example.squashfs");
    assert!(
        matches!(&error, ImportError::MediaType { media_type, .. } if media_type == "application/vnd.example.squashfs"),
        "{error}"
    );
    // A Helm chart lies in registries and layouts like an image.
    let mut chart = Images::default();
    let config = chart.blob("application/vnd.cncf.helm.config.v1+json", b"{}");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": []}).to_string();
    let manifest = chart.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    chart.manifests.push(manifest);
    let layout = chart.layout();
    let error = unpack(layout.source()).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("helm") && error.contains("no image of a root filesystem"),
        "{error}"
    );
}

#[test]
fn documents_that_say_nonsense_are_refused() {
    if !is_root() {
        return;
    }
    let layout = Images::of(&[layer("a")]).layout();
    std::fs::write(layout.path().join("index.json"), "{\"manifests\": 1}").unwrap();
    let error = unpack(layout.source()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, ImportError::Document { document, .. } if document.starts_with("index.json")),
        "{error}"
    );
    // A digest becomes a path: nothing that is no digest passes.
    let mut images = Images::of(&[layer("a")]);
    images.manifests[0]["digest"] = json!("sha256:../../../../etc/passwd");
    let error = {
        let layout = images.layout();
        unpack(layout.source()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(error.contains("expected sha256:<64 hexadecimal digits>"), "{error}");
    // More layers than the bound.
    let layers: Vec<Vec<u8>> = (0..3).map(|number| layer(&number.to_string())).collect();
    let layout = Images::of(&layers).layout();
    let limits = Limits {
        layers_max: 2,
        ..Limits::default()
    };
    let error = unpack_with(layout.source(), &limits).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::Limit { what: "layers", .. }), "{error}");
    // A manifest that its bytes on disk make too long to read.
    let limits = Limits {
        document_bytes_max: 100,
        ..Limits::default()
    };
    let error = unpack_with(layout.source(), &limits).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::Limit { .. }), "{error}");
    assert!(matches!(
        error_of(&Images::default()),
        ImportError::Io { .. } | ImportError::Platform { .. }
    ));
}

/// The older form of `docker save`.
struct Saved {
    files: Vec<(String, Vec<u8>)>,
    links: Vec<(String, String)>,
}

impl Saved {
    fn of(layers: &[Vec<u8>]) -> Self {
        let diff_ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
        let config = json!({
            "os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let name = format!("{}.json", sha256(&config));
        let mut files = vec![(name.clone(), config)];
        let mut names = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            names.push(format!("{number}{}/layer.tar", "e".repeat(63)));
            files.push((names[number].clone(), layer.clone()));
        }
        let manifest = json!([{"Config": name, "RepoTags": ["site/root:1"], "Layers": names}]);
        files.push(("manifest.json".to_owned(), manifest.to_string().into_bytes()));
        Self {
            files,
            links: Vec::new(),
        }
    }

    fn tar(&self) -> Vec<u8> {
        let mut tar = Tar::new();
        for (name, content) in &self.files {
            tar = tar.entry(tar::EntryType::Regular, name.as_bytes(), content, |_| {});
        }
        for (name, target) in &self.links {
            tar = tar.symlink(name, target);
        }
        tar.finish()
    }
}

#[test]
fn the_older_form_of_docker_save_is_read() {
    if !is_root() {
        return;
    }
    let saved = Saved::of(&[layer("a"), layer("b")]);
    for bytes in [saved.tar(), gzip(&saved.tar())] {
        let file = file("image.tar", &bytes);
        let source = Source::detect(&file.path, &Limits::default()).unwrap();
        assert!(matches!(source, Source::ImageArchive { .. }), "{source:?}");
        let root = unpack(source).unwrap();
        assert_eq!(paths(&root.root), ["a", "b"]);
        assert_eq!(root.imported.origin.name.as_deref(), Some("site/root:1"));
        let image = root.imported.image.unwrap();
        assert_eq!(
            format!("{}.json", image.digest.trim_start_matches("sha256:")),
            saved.files[0].0
        );
        assert_eq!(image.layers[0].digest, None);
    }
}

#[test]
fn a_layer_that_is_a_link_to_another_ones_file_is_followed_inside_the_archive() {
    if !is_root() {
        return;
    }
    let mut saved = Saved::of(&[layer("a"), layer("a")]);
    let (first, (second, _)) = (saved.files[1].0.clone(), saved.files.remove(2));
    saved.links.push((second.clone(), format!("../{first}")));
    let file_of = |saved: &Saved| file("image.tar", &saved.tar());
    let open = |file: &super::support::File| {
        unpack(Source::ImageArchive {
            path: file.path.clone(),
            name: None,
        })
    };
    assert_eq!(paths(&open(&file_of(&saved)).unwrap().root), ["a"]);
    saved.links = vec![(second.clone(), "../../outside".to_owned())];
    assert!(matches!(
        open(&file_of(&saved)).map(|_| ()),
        Err(ImportError::Entry { .. })
    ));
    saved.links = vec![(second, "../missing".to_owned())];
    assert!(matches!(
        open(&file_of(&saved)).map(|_| ()),
        Err(ImportError::Absent { .. })
    ));
}

#[test]
fn an_archive_of_docker_save_is_checked_by_its_configuration() {
    if !is_root() {
        return;
    }
    let mut saved = Saved::of(&[layer("a")]);
    saved.files[1].1 = layer("b");
    let changed = file("image.tar", &saved.tar());
    let source = |file: &super::support::File| Source::ImageArchive {
        path: file.path.clone(),
        name: None,
    };
    let error = unpack(source(&changed)).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::Digest { .. }), "{error}");
    let mut saved = Saved::of(&[layer("a")]);
    saved.files[0].1.push(b' ');
    let changed = file("image.tar", &saved.tar());
    let error = unpack(source(&changed)).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, ImportError::Digest { blob, .. } if blob.ends_with(".json")),
        "{error}"
    );
    let no_image = file("image.tar", &layer("a"));
    let error = unpack(source(&no_image)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("expected an image"), "{error}");
}
