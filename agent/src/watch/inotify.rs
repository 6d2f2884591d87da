//! inotify(7) on the folders that a baseline lists.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drift::{Expected, Position};
use manifest::{EntryKind, Root, TreePath};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::concern::{facts_concerned, is_compared, is_worth_watching, needs_walk};
use super::hints::Change;
use crate::scan::{open_folder_at, open_root};

/// Read at once, in bytes: some hundreds of events.
const BUFFER_BYTES: usize = 32 << 10;
/// Most events handed over at once.
const EVENTS_MAX: usize = 1_024;
/// Events are left in the kernel for this long: a log that is written a thousand times is one event there.
const GATHER: Duration = Duration::from_millis(50);
const USER_WATCHES: &str = "/proc/sys/fs/inotify/max_user_watches";

/// Watching does not work, or no longer.
#[derive(Debug, thiserror::Error)]
#[error("watching for changes: {0}")]
pub struct WatchError(String);

impl WatchError {
    /// No more events come.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        Self("ended".to_owned())
    }
}

impl From<Errno> for WatchError {
    fn from(error: Errno) -> Self {
        Self(error.to_string())
    }
}

/// How many folders are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Armed {
    /// Watched.
    pub watched: usize,
    /// Worth it and not watched: the bound was reached, or the kernel refused. Changes there are seen by scans.
    pub unwatched: usize,
}

/// The watched folders of one node by one baseline.
pub struct WatchSet {
    inotify: OwnedFd,
    expected: Arc<Expected>,
    folders: Mutex<HashMap<i32, Position>>,
    watches_max: usize,
}

impl std::fmt::Debug for WatchSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WatchSet({} folders)", self.folders().len())
    }
}

impl WatchSet {
    /// Watches nothing yet. At most `watches_max` folders, and half of what the kernel grants a user, will be.
    ///
    /// # Errors
    /// When the kernel grants no inotify instance.
    pub fn open(expected: Arc<Expected>, watches_max: usize) -> Result<Self, WatchError> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let granted = std::fs::read_to_string(USER_WATCHES).ok();
        let granted = granted
            .and_then(|text| text.trim().parse::<usize>().ok())
            .unwrap_or(8_192);
        Ok(Self {
            inotify,
            expected,
            folders: Mutex::default(),
            watches_max: watches_max.min(granted / 2),
        })
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<i32, Position>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches every listed folder that is there and worth it. Folders watched already stay so: this runs before each
    /// scan, so that what happens during a scan is heard of. Blocks.
    pub fn arm(&self, base: &Path, roots_are_folders: bool) -> Armed {
        let mut armed = Armed::default();
        let open = |root: &Root| {
            open_root(base, root, roots_are_folders)
                .ok()
                .map(|top| (root.clone(), top))
        };
        let tops: Vec<(Root, OwnedFd)> = self.expected.roots().iter().filter_map(open).collect();
        let mut is_full = false;
        for position in self.expected.positions() {
            let Ok(path) = TreePath::from_bytes(self.expected.path_bytes(position)) else {
                continue;
            };
            let is_folder = self.expected.entry(position, &path).kind == EntryKind::Directory;
            let is_wanted = || is_worth_watching(&self.expected, &path) || !facts_concerned(&path).is_empty();
            if !is_folder || !is_wanted() {
                continue;
            }
            let mount = self.expected.root_of(&path).map(|root| &root.mount);
            // A root that is not mounted is said to be unseen by the scan.
            let Some((root, top)) = tops.iter().find(|(root, _)| Some(&root.mount) == mount) else {
                continue;
            };
            is_full = is_full || armed.watched >= self.watches_max;
            if is_full {
                armed.unwatched += 1;
                continue;
            }
            match self.watch(root, top, &path, position) {
                Ok(()) => armed.watched += 1,
                // Not there, or something is mounted over it: the scan says so.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => {}
                Err(error) => {
                    is_full = error == Errno::NOSPC;
                    armed.unwatched += 1;
                }
            }
        }
        armed
    }

    fn watch(&self, root: &Root, top: &OwnedFd, path: &TreePath, position: Position) -> Result<(), Errno> {
        let folder = open_folder_at(top, root, path, OFlags::PATH)?;
        let events = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let handle = format!("/proc/self/fd/{}", folder.as_raw_fd());
        // Held over both calls: an event is never read before its folder is known.
        let mut folders = self.folders();
        let watch = inotify::add_watch(&self.inotify, handle, events)?;
        folders.insert(watch, position);
        Ok(())
    }

    /// What an event says; `None`: nothing that is compared.
    fn hint(&self, watch: i32, events: ReadFlags, name: Option<&[u8]>) -> Option<(TreePath, Change)> {
        let position = *self.folders().get(&watch)?;
        if events.contains(ReadFlags::IGNORED) {
            self.folders().remove(&watch);
            return None;
        }
        let folder = TreePath::from_bytes(self.expected.path_bytes(position)).ok()?;
        if events.contains(ReadFlags::MOVE_SELF) {
            // What happens in it from now on happens elsewhere.
            self.folders().remove(&watch);
            let _ = inotify::remove_watch(&self.inotify, watch);
            return Some((folder, Change::Touched));
        }
        let path = match name {
            Some(name) => folder.join(name).ok()?,
            None => folder,
        };
        let has = |flag| events.contains(flag);
        if has(ReadFlags::ISDIR) && (has(ReadFlags::CREATE) || has(ReadFlags::MOVED_TO)) {
            let matters = is_compared(&self.expected, &path, false) || needs_walk(&self.expected, &path);
            return matters.then_some((path, Change::NewFolder));
        }
        let is_writing = has(ReadFlags::MODIFY) || has(ReadFlags::CREATE);
        let is_content_only = has(ReadFlags::MODIFY) || has(ReadFlags::CLOSE_WRITE);
        let matters = is_compared(&self.expected, &path, is_content_only) || !facts_concerned(&path).is_empty();
        let change = if is_writing { Change::Writing } else { Change::Touched };
        matters.then_some((path, change))
    }
}

/// Reads events.
#[derive(Debug)]
pub struct Watcher {
    set: AsyncFd<Handle>,
    gather: Duration,
}

#[derive(Debug)]
struct Handle(Arc<WatchSet>);

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.inotify.as_raw_fd()
    }
}

/// What came of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Paths and what was said of them.
    pub hints: Vec<(TreePath, Change)>,
    /// Events were lost.
    pub is_overflown: bool,
}

impl Watcher {
    /// Reads the events of these folders. Needs a runtime.
    ///
    /// # Errors
    /// When the runtime cannot wait for them.
    pub fn new(set: Arc<WatchSet>) -> Result<Self, WatchError> {
        // The handle owns its descriptor for as long as it lives, which is all that the other way asks for.
        #[expect(deprecated, reason = "what takes its place is unsafe, and unsafe code is denied")]
        let set = AsyncFd::new(Handle(set));
        Ok(Self {
            set: set.map_err(|error| WatchError(error.to_string()))?,
            gather: GATHER,
        })
    }

    /// Reads events as they come, for tests that make them one by one.
    #[must_use]
    pub const fn at_once(mut self) -> Self {
        self.gather = Duration::ZERO;
        self
    }

    /// The folders.
    #[must_use]
    pub fn set(&self) -> &Arc<WatchSet> {
        &self.set.get_ref().0
    }

    /// Waits for events that matter. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// When no more events will come: begin anew.
    pub async fn next(&mut self) -> Result<Heard, WatchError> {
        let failed = |error: std::io::Error| WatchError(error.to_string());
        loop {
            let mut ready = self.set.readable().await.map_err(failed)?;
            if !self.gather.is_zero() {
                tokio::time::sleep(self.gather).await;
            }
            let read = ready.try_io(|handle| read_events(&handle.get_ref().0).map_err(Into::into));
            match read {
                Ok(Ok(heard)) if heard == Heard::default() => {}
                Ok(heard) => return heard.map_err(failed),
                Err(_would_block) => {}
            }
        }
    }
}

fn read_events(set: &WatchSet) -> Result<Heard, Errno> {
    let mut heard = Heard::default();
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = inotify::Reader::new(set.inotify.as_fd(), &mut buffer);
    let mut count = 0;
    // What is left in the buffer would be lost with the reader.
    while count < EVENTS_MAX || !reader.is_buffer_empty() {
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN) if count > 0 => break,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        count += 1;
        // A filesystem that was unmounted is as much news as events that were lost.
        if event
            .events()
            .intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT)
        {
            heard.is_overflown = true;
        }
        let name = event.file_name().map(std::ffi::CStr::to_bytes);
        heard.hints.extend(set.hint(event.wd(), event.events(), name));
    }
    Ok(heard)
}
