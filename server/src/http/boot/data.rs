//! Bytes of the boot listener: loaders, kernels, manifests, packs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use manifest::Digest;
use netboot::MacAddr;
use netboot::tftp::{FileName, NameError};
use serde::Deserialize;
use store::NewEvent;

use crate::app::{App, AppError};
use crate::boot_plane::GRUB_START;
use crate::http::boot::pace::{LoaderPace, in_memory};
use crate::http::range::{self, Answer};
use crate::image::store::Download;
use crate::image::{ArtifactName, StoreError};

#[derive(Deserialize)]
pub(super) struct Who {
    mac: Option<String>,
}

/// GET `/boot/v1/loaders/{name}`, for UEFI HTTP boot. Names are understood as by TFTP.
pub(super) async fn loader(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    app.metrics.boot_request("loader");
    let missing = || AppError::NotFound {
        what: "loader".to_owned(),
        key: name.clone(),
    };
    let machine = peer.ip();
    let found = match FileName::parse(name.as_bytes()) {
        Ok(parsed) => match app.loaders.find(&parsed) {
            Some(content) => Some((parsed, content)),
            None => app.loaders.find_next(Some(&parsed), machine),
        },
        Err(NameError::Characters) => app.loaders.find_next(None, machine),
        Err(_) => None,
    };
    let (name, content) = found.ok_or_else(missing)?;
    if method == Method::GET {
        app.loaders.note_read(&name, machine);
    }
    let open = |range| std::future::ready(Ok(in_memory(&content, range)));
    let mut response = ranged(&headers, Some((&app.loader_pace, machine)), open).await?;
    let efi = HeaderValue::from_static("application/efi");
    response.headers_mut().insert(header::CONTENT_TYPE, efi);
    Ok(response)
}

/// GET `/grub/grub.cfg`, which a GRUB that was loaded by HTTP asks for.
pub(super) async fn grub_start(State(app): State<App>) -> Result<Response, AppError> {
    app.metrics.boot_request("loader");
    let missing = || AppError::NotFound {
        what: "script".to_owned(),
        key: GRUB_START.to_owned(),
    };
    let name = FileName::parse(GRUB_START.as_bytes()).map_err(|_| missing())?;
    let content = app.loaders.find(&name).ok_or_else(missing)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], content).into_response())
}

/// GET `/boot/v1/deployer/{digest}/{vmlinuz|initrd.img}?mac=…`; the first byte of each is an event.
pub(super) async fn artifact(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path((digest, artifact)): Path<(String, String)>,
    Query(who): Query<Who>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    app.metrics.boot_request("artifact");
    let missing = || AppError::NotFound {
        what: "artifact".to_owned(),
        key: artifact.clone(),
    };
    let digest: Digest = digest.parse().map_err(|_| missing())?;
    let name = ArtifactName::parse(&artifact).ok_or_else(missing)?;
    if method == Method::GET
        && !headers.contains_key(header::RANGE)
        && let Some(mac) = who.mac
    {
        let mac: MacAddr = mac
            .parse()
            .map_err(|error| AppError::Invalid(format!("mac: {error}")))?;
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
    let pace = Some((&app.loader_pace, peer.ip()));
    ranged(&headers, pace, |range| app.images.artifact(digest, name, range)).await
}

/// GET `/boot/v1/images/{digest}/{manifest|signature|packs}`.
pub(super) async fn document(
    State(app): State<App>,
    Path((digest, document)): Path<(String, String)>,
) -> Result<Response, AppError> {
    app.metrics.boot_request("image");
    let missing = || AppError::NotFound {
        what: "image document".to_owned(),
        key: document.clone(),
    };
    let digest: Digest = digest.parse().map_err(|_| missing())?;
    match document.as_str() {
        "manifest" => Ok(app.images.manifest_bytes(digest).await?.into_response()),
        "signature" => Ok(app.images.signature(digest).await?.as_str().to_owned().into_response()),
        "packs" => Ok(app.images.pack_index_bytes(digest).await?.into_response()),
        _ => Err(missing()),
    }
}

/// GET `/boot/v1/packs/{digest}`.
pub(super) async fn pack(
    State(app): State<App>,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    app.metrics.boot_request("pack");
    let missing = |_| AppError::NotFound {
        what: "pack".to_owned(),
        key: digest.clone(),
    };
    let digest: Digest = digest.parse().map_err(missing)?;
    ranged(&headers, None, |range| app.images.get_pack(digest, range)).await
}

/// Answers a range request, at a machine's pace where one is given. The whole is opened first, for its size; an object
/// store reads lazily.
async fn ranged<F, R>(
    headers: &HeaderMap,
    pace: Option<(&Arc<LoaderPace>, IpAddr)>,
    open: F,
) -> Result<Response, AppError>
where
    F: Fn(Option<std::ops::Range<u64>>) -> R,
    R: Future<Output = Result<Download, StoreError>>,
{
    let whole = open(None).await?;
    let size = whole.size;
    let wanted = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let (status, download, content_range) = match range::answer(wanted, size) {
        Answer::Whole => (StatusCode::OK, whole, None),
        Answer::Part(range) => {
            let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (
                StatusCode::PARTIAL_CONTENT,
                open(Some(range)).await?,
                Some(content_range),
            )
        }
        Answer::Outside => {
            let content_range = format!("bytes */{size}");
            return Ok((
                StatusCode::RANGE_NOT_SATISFIABLE,
                [(header::CONTENT_RANGE, content_range)],
            )
                .into_response());
        }
    };
    let length = download.range.end - download.range.start;
    let download = match pace {
        Some((pace, machine)) => pace.apply(machine, download),
        None => download,
    };
    let mut response = (status, Body::from_stream(download.stream)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    if let Some(value) = content_range.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}
