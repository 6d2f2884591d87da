//! Bytes of the boot listener: loaders, kernels, manifests, packs.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use manifest::Digest;
use netboot::MacAddr;
use netboot::tftp::{FileName, NameError};
use serde::Deserialize;
use store::NewEvent;

use super::send::{Asked, Sent, ranged};
use crate::app::{App, AppError, boot, trust};
use crate::boot_plane::GRUB_START;
use crate::http::listener::LocalAddress;
use crate::image::{ArtifactName, Document, Download};

#[derive(Deserialize)]
pub(super) struct Who {
    mac: Option<String>,
}

/// GET `/boot/v1/loaders/{name}`, for UEFI HTTP boot. Names are understood as by TFTP.
pub(super) async fn loader(
    State(app): State<App>,
    LocalAddress(local): LocalAddress,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, AppError> {
    app.metrics.boot_request("loader");
    let missing = || AppError::NotFound {
        what: "loader".to_owned(),
        key: name.clone(),
    };
    let machine = asked.machine;
    let found = match FileName::parse(name.as_bytes()) {
        Ok(parsed) => match app.loaders.find(&parsed, &boot::http_base(&app, local)?) {
            Some(content) => Some((parsed, content)),
            None => app.loaders.find_next(Some(&parsed), machine),
        },
        Err(NameError::Characters) => app.loaders.find_next(None, machine),
        Err(_) => None,
    };
    let (name, content) = found.ok_or_else(missing)?;
    if !asked.is_probe {
        app.loaders.note_read(&name, machine);
    }
    let open = |_| std::future::ready(Ok(Download::of_memory(content.clone())));
    let mut response = ranged(&app, &asked, Sent::AtPace, open).await?;
    let efi = HeaderValue::from_static("application/efi");
    response.headers_mut().insert(header::CONTENT_TYPE, efi);
    Ok(response)
}

/// GET `/grub/grub.cfg`, which a GRUB that was loaded by HTTP asks for.
pub(super) async fn grub_start(
    State(app): State<App>,
    LocalAddress(local): LocalAddress,
) -> Result<Response, AppError> {
    app.metrics.boot_request("loader");
    let missing = || AppError::NotFound {
        what: "script".to_owned(),
        key: GRUB_START.to_owned(),
    };
    let name = FileName::parse(GRUB_START.as_bytes()).map_err(|_| missing())?;
    let http_base = boot::http_base(&app, local)?;
    let content = app.loaders.find(&name, &http_base).ok_or_else(missing)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], content).into_response())
}

/// GET `/boot/v1/deployer/{digest}/{vmlinuz|initrd.img}?mac=…`; the first byte of each is an event.
pub(super) async fn artifact(
    State(app): State<App>,
    Path((digest, artifact)): Path<(String, String)>,
    Query(who): Query<Who>,
    asked: Asked,
) -> Result<Response, AppError> {
    app.metrics.boot_request("artifact");
    let missing = || AppError::NotFound {
        what: "artifact".to_owned(),
        key: artifact.clone(),
    };
    let digest: Digest = digest.parse().map_err(|_| missing())?;
    let name = ArtifactName::parse(&artifact).ok_or_else(missing)?;
    trust::not_revoked(&app, digest)?;
    if !asked.is_probe
        && asked.range.is_none()
        && let Some(mac) = who.mac
    {
        let mac: MacAddr = mac
            .parse()
            .map_err(|error| AppError::Invalid(format!("mac: {error}")))?;
        app.bodies.machines().learn(asked.machine, mac);
        let kind = match name {
            ArtifactName::Kernel => "kernel",
            ArtifactName::Initramfs => "initramfs",
        };
        let (mac, detail) = (mac.to_string(), format!("the loader fetches {}", name.as_str()));
        app.store
            .event_add(NewEvent {
                node_id: None,
                mac: Some(&mac),
                kind,
                detail: &detail,
            })
            .await?;
    }
    let open = |range| app.images.artifact(digest, name, range);
    ranged(&app, &asked, Sent::AtPace, open).await
}

/// GET `/boot/v1/images/{digest}/{manifest|signature|packs|manifest.zst|packs.zst}`. They may be large and are sent as they are stored; the
/// deployer checks them against the digest that it was given over TLS.
pub(super) async fn document(
    State(app): State<App>,
    Path((digest, document)): Path<(String, String)>,
    asked: Asked,
) -> Result<Response, AppError> {
    app.metrics.boot_request("image");
    let missing = || AppError::NotFound {
        what: "image document".to_owned(),
        key: document.clone(),
    };
    let digest: Digest = digest.parse().map_err(|_| missing())?;
    let document = Document::parse(&document).ok_or_else(missing)?;
    trust::not_revoked(&app, digest)?;
    let open = |range| app.images.get_document(digest, document, range);
    ranged(&app, &asked, Sent::Freely, open).await
}

/// GET `/boot/v1/packs/{digest}`.
pub(super) async fn pack(
    State(app): State<App>,
    Path(digest): Path<String>,
    asked: Asked,
) -> Result<Response, AppError> {
    app.metrics.boot_request("pack");
    let missing = |_| AppError::NotFound {
        what: "pack".to_owned(),
        key: digest.clone(),
    };
    let digest: Digest = digest.parse().map_err(missing)?;
    ranged(&app, &asked, Sent::Freely, |range| app.images.get_pack(digest, range)).await
}
