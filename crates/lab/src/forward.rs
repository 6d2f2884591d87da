//! A port on the host's loopback that leads into a rack's namespace, so that a browser reaches the appliance.
//!
//! Sockets belong to the namespace of the thread that made them, so a listener made outside and a connection made
//! inside need no route between the two. Refused: a veth pair, which needs addresses that clash with nothing on
//! the host.

use crate::netns::{NetworkNamespace, connect};
use anyhow::{Context as _, Result};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// How many connections are forwarded at once; further ones are closed.
const CONNECTIONS_MAX: usize = 128;

/// A running forward. Dropping it closes the listener; connections that are open end with their peers.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forward {
    /// Listens on `listen` in the caller's namespace (port 0 picks one) and connects each caller to `target` inside
    /// `namespace`. A target that does not answer closes the caller's connection.
    ///
    /// # Errors
    /// When `listen` cannot be bound.
    pub fn start(namespace: &NetworkNamespace, listen: SocketAddr, target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let name = namespace.name().to_owned();
        let thread = thread::Builder::new().name("forward".to_owned()).spawn({
            let stopped = Arc::clone(&stopped);
            move || accept(&listener, &name, target, &stopped)
        })?;
        Ok(Self {
            address,
            stopped,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // `accept` has no time limit: a connection of our own makes it look at the flag.
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ended = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, namespace: &str, target: SocketAddr, stopped: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    for outside in listener.incoming() {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(outside) = outside else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (open, namespace) = (Arc::clone(&open), namespace.to_owned());
        thread::spawn(move || {
            if let Err(error) = join_streams(&outside, &namespace, target) {
                tracing::debug!(error = %format!("{error:#}"), "forwarded connection ended");
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn join_streams(outside: &TcpStream, namespace: &str, target: SocketAddr) -> Result<()> {
    let inside = connect(namespace, target)?;
    thread::scope(|scope| {
        scope.spawn(|| copy_one_way(outside, &inside));
        copy_one_way(&inside, outside)
    })?;
    Ok(())
}

/// Copies until `from` ends and passes the end on, so that a half-closed connection stays one.
fn copy_one_way(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let copied = io::copy(&mut from, &mut to);
    // The peer may have closed first; then there is nobody to tell.
    let _closed_already = to.shutdown(Shutdown::Write);
    if copied.is_err() {
        let _closed_already = from.shutdown(Shutdown::Both);
    }
    copied.map(drop)
}
