//! Serves a folder's files by TFTP from memory, to try the engine by hand:
//! `cargo run -p netboot --example tftpd -- 127.0.0.1:6969 FOLDER [single-port]`

use std::net::SocketAddr;
use std::path::Path;

use netboot::tftp::{FileMap, FileName, OpenError, TftpConfig, TftpFile, TftpServer, TftpSource, TransferEvent};
use tokio_util::sync::CancellationToken;

struct Folder(FileMap);

impl TftpSource for Folder {
    async fn open(&self, name: &FileName, _peer: SocketAddr) -> Result<TftpFile, OpenError> {
        self.0.get(name).ok_or(OpenError::NotFound)
    }

    async fn event(&self, _event: TransferEvent) {}
}

fn load(folder: &Path) -> std::io::Result<FileMap> {
    let mut map = FileMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = FileName::parse(entry.file_name().as_encoded_bytes())
        {
            map.insert(name, TftpFile::from(std::fs::read(entry.path())?));
        }
    }
    Ok(map)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, folder, rest @ ..] = arguments.as_slice() else {
        return Err("arguments: ADDRESS:PORT FOLDER [single-port]".into());
    };
    let mut config = TftpConfig::new(listen.parse()?);
    config.is_single_port = rest.iter().any(|word| word == "single-port");
    let map = load(Path::new(folder))?;
    println!("serving {} files on {listen}", map.len());
    let server = TftpServer::bind(config, Folder(map))?;
    let counters = server.counters();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let task = tokio::spawn(server.run(cancel));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    task.await?;
    for (kind, count) in counters.snapshot().into_iter().filter(|(_, count)| *count > 0) {
        println!("{kind} {count}");
    }
    Ok(())
}
