//! This project's TFTP engine, alone in a process: what is measured beside other servers.
//!
//! Runtime, configuration and log level are those of the appliance; only the content is a folder's files instead of the
//! loaders of known machines.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use netboot::tftp::{FileMap, FileName, OpenError, TftpConfig, TftpFile, TftpServer, TftpSource, TransferEvent};
use tokio_util::sync::CancellationToken;

/// The files of a folder, in memory.
pub struct Files(FileMap);

impl TftpSource for Files {
    async fn open(&self, name: &FileName, _peer: SocketAddr) -> Result<TftpFile, OpenError> {
        self.0.get(name).ok_or(OpenError::NotFound)
    }

    async fn event(&self, _event: TransferEvent) {}
}

/// The server with its socket open; needs a runtime.
///
/// # Errors
/// A name that TFTP cannot ask for, or an address that cannot be bound.
pub fn own_server(listen: SocketAddr, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<TftpServer<Files>> {
    let mut map = FileMap::new();
    for (name, content) in files {
        map.insert(FileName::parse(name.as_bytes())?, TftpFile::from(content));
    }
    TftpServer::bind(TftpConfig::new(listen), Files(map)).with_context(|| format!("cannot listen on {listen}"))
}

/// Serves the files of `folder` on `listen` until it is killed.
///
/// # Errors
/// A folder that cannot be read, or an address that cannot be bound.
pub fn serve(listen: SocketAddr, folder: &Path) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let files = files_of(folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        own_server(listen, files)?.run(CancellationToken::new()).await;
        Ok(())
    })
}

fn files_of(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push((name, fs::read(entry.path())?));
        }
    }
    Ok(files)
}
