//! `plumbline image sign`: the signature that was made on another machine, put to its image in the server's data folder.

use std::path::Path;

use anyhow::{Context as _, bail};
use manifest::{Digest, Manifest, Signature};
use serde_json::json;

use super::build::folders;
use crate::cli::arguments::PlaceArguments;
use crate::cli::output::{self, Output};
use crate::cli::text;
use crate::image::trust::KeyState;
use crate::image::{ImageStore, Keys, ToSign};

/// Largest signature that is read, in bytes.
const SIGNATURE_BYTES_MAX: u64 = 16 << 10;

/// Checks a signature against the keys that may sign and puts it to its image. The server finds it by itself.
///
/// # Errors
/// One line: whose signature it is, and why it does not count.
pub async fn image_sign(output: Output, image: &str, signature: &Path, place: &PlaceArguments) -> anyhow::Result<()> {
    let digest: Digest = image.parse().context("expected the whole digest of the manifest")?;
    let (data_dir, _) = folders(place)?;
    let named = || signature.display().to_string();
    let size = std::fs::metadata(signature).with_context(named)?.len();
    if size > SIGNATURE_BYTES_MAX {
        bail!("{}: {size} bytes, expected a .minisig file of a few hundred", named());
    }
    let signature = Signature::from_text(std::fs::read_to_string(signature).with_context(named)?);

    let store = ImageStore::open(&data_dir)?;
    let bytes = store.manifest_bytes(digest).await?;
    let header = Manifest::decode(&bytes)?.header;
    let keys = Keys::load_or_create(&data_dir.join("keys"))?;
    let signers = keys.signers();
    let key = match signers.check(header.kind, &bytes, &signature) {
        Ok(key) => key,
        Err(reason) => bail!("{}@{}: {reason}", header.name, header.version),
    };
    // The key of agent releases is not in the list, and always signs.
    if signers.trust.key(key).is_some_and(|key| key.state != KeyState::Active) {
        bail!("it is signed by key {key}, which is retired and signs no more: sign it by another one");
    }
    store.put_signature(digest, &signature).await?;
    if output.json {
        return output.json(&json!({ "digest": digest, "signed_by": key.to_string() }));
    }
    output.say(&format!(
        "{}@{} is signed by key {key}; the server takes it within seconds",
        header.name, header.version
    ))
}

/// Says how an image gets its signature where the key is on another machine.
///
/// # Errors
/// Standard output fails.
pub(super) fn say_how(digest: Digest, to_sign: &ToSign) -> anyhow::Result<()> {
    output::print(&text::lines(&how(digest, to_sign)))
}

fn how(digest: Digest, to_sign: &ToSign) -> String {
    let key = match to_sign.key {
        Some(id) => format!("key {id}"),
        None => "a key that is trusted here, of which there is none: `plumbline key add` takes one".to_owned(),
    };
    format!(
        "It is no image before it is signed, and the key for that is not on this machine.\n  \
         1. Copy {manifest} to the machine that has {key}.\n  \
         2. There: minisign -S -s image.key -m manifest.ndjson -t '{comment}'\n  \
         3. Copy manifest.ndjson.minisig back. Here: plumbline image sign {digest} --signature manifest.ndjson.minisig\n",
        manifest = to_sign.manifest.display(),
        comment = to_sign.comment
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_signature_names_file_key_and_commands() {
        let digest = Digest::of(b"x");
        let to_sign = ToSign {
            manifest: "/var/lib/plumbline/images/manifests/x/manifest.ndjson".into(),
            comment: "plumbline os debian 1".to_owned(),
            key: Some("E7620F1842B4E81F".parse().unwrap()),
        };
        let text = how(digest, &to_sign);
        for words in [
            "Copy /var/lib/plumbline/images/manifests/x/manifest.ndjson",
            "has key E7620F1842B4E81F",
            "-m manifest.ndjson -t 'plumbline os debian 1'",
            &format!("plumbline image sign {digest} --signature"),
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[tokio::test]
    async fn only_a_signature_that_counts_is_put_to_its_image() {
        let data = tempfile::tempdir().unwrap();
        let keys = data.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        let [elsewhere, foreign] = [(); 2].map(|()| manifest::KeyPair::generate().unwrap());
        std::fs::write(keys.join("image.pub"), elsewhere.public().as_str()).unwrap();
        let header = manifest::Header::new(manifest::ManifestKind::Os, "debian", "1");
        let bytes = Manifest::new(header, Vec::new()).unwrap().encode().unwrap();
        let store = ImageStore::open(data.path()).unwrap();
        let parts = crate::image::ImageParts {
            manifest: bytes.clone().into(),
            signature: None,
            packs: manifest::packs::PackIndex::default(),
            artifacts: Vec::new(),
        };
        let image = store.put_image(parts).await.unwrap().to_string();
        let place = PlaceArguments {
            config: crate::cli::arguments::ConfigArgument { config: None },
            data_dir: Some(data.path().to_owned()),
        };
        let file = data.path().join("manifest.ndjson.minisig");
        let sign = async |text: &str| {
            std::fs::write(&file, text).unwrap();
            image_sign(Output { json: false }, &image, &file, &place).await
        };
        let text = |key: &manifest::KeyPair, bytes: &[u8]| key.sign(bytes, "x").unwrap().as_str().to_owned();
        for (wrong, words) in [
            (text(&foreign, &bytes), "not trusted here"),
            (text(&elsewhere, b"another"), "changed after it was signed"),
            ("hello".to_owned(), "no minisign signature"),
        ] {
            let error = sign(&wrong).await.unwrap_err().to_string();
            assert!(error.contains(words), "{error} should say {words}");
            assert!(!store.is_signed(image.parse().unwrap()).await.unwrap());
        }
        sign(&text(&elsewhere, &bytes)).await.unwrap();
        assert_eq!(store.list().await.unwrap(), [image.parse().unwrap()]);
    }
}
