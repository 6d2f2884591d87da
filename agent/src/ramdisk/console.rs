//! What the person at the rack sees.
//!
//! Idea: a screen and a serial line may both be watched, and either may be stuck (a serial line with flow control and
//! nobody behind it). Each console has a thread and a short queue of its own; a full queue drops lines for that console
//! alone, and nobody ever waits for one.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait for one console.
const QUEUE_LINES_MAX: usize = 200;
/// Characters in one line of a box.
const BOX_COLUMNS: usize = 72;
/// Consoles written to.
const CONSOLES_MAX: usize = 4;

/// Where lines for people go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Console {
    sinks: Arc<Vec<SyncSender<String>>>,
    pending: Arc<AtomicUsize>,
}

impl Console {
    /// A console that shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            sinks: Arc::default(),
            pending: Arc::default(),
        }
    }

    /// All consoles of the machine: those in `/proc/consoles`, or `/dev/console` when none of them opens.
    #[must_use]
    pub fn of_machine() -> Self {
        let listed = std::fs::read_to_string("/proc/consoles").unwrap_or_default();
        let console = Self::open(&names(&listed));
        if console.sinks.is_empty() {
            Self::open(&["console".to_owned()])
        } else {
            console
        }
    }

    fn open(names: &[String]) -> Self {
        let pending = Arc::new(AtomicUsize::new(0));
        let mut sinks = Vec::new();
        for name in names.iter().take(CONSOLES_MAX) {
            let opened = OpenOptions::new()
                .write(true)
                .custom_flags(rustix::fs::OFlags::NOCTTY.bits().cast_signed())
                .open(format!("/dev/{name}"));
            let Ok(mut device) = opened else { continue };
            let (sender, receiver) = sync_channel::<String>(QUEUE_LINES_MAX);
            let done = Arc::clone(&pending);
            let started = std::thread::Builder::new()
                .name(format!("console-{name}"))
                .spawn(move || {
                    for line in receiver {
                        // A console that cannot be written to has nobody to be told.
                        let _ = device.write_all(line.as_bytes());
                        done.fetch_sub(1, Ordering::AcqRel);
                    }
                });
            if started.is_ok() {
                sinks.push(sender);
            }
        }
        Self {
            sinks: Arc::new(sinks),
            pending,
        }
    }

    /// One line of detail.
    pub fn say(&self, text: impl AsRef<str>) {
        self.write(&format!("  {}\n", printable(text.as_ref())));
    }

    /// The heading of a new step.
    pub fn stage(&self, title: impl AsRef<str>) {
        self.write(&format!("\n== Plumbline: {}\n", printable(title.as_ref())));
    }

    /// Something a person must act on, in a box.
    pub fn alarm(&self, title: &str, lines: &[&str]) {
        self.write(&alarm_box(title, lines));
    }

    /// Waits until everything is out, at most this long.
    pub fn flush(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.pending.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn write(&self, text: &str) {
        for sink in self.sinks.iter() {
            self.pending.fetch_add(1, Ordering::AcqRel);
            if sink.try_send(text.to_owned()).is_err() {
                self.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// Device names in the text of `/proc/consoles`.
fn names(listed: &str) -> Vec<String> {
    let is_name = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(is_name)
        .map(str::to_owned)
        .collect()
}

/// Text without anything that moves the cursor or changes colours: it may come from the network.
fn printable(text: &str) -> String {
    let shown = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().take(2_000).map(shown).collect()
}

fn alarm_box(title: &str, lines: &[&str]) -> String {
    let rule = "*".repeat(BOX_COLUMNS + 4);
    let mut text = format!(
        "\n{rule}\n* {:<BOX_COLUMNS$} *\n* {:<BOX_COLUMNS$} *\n",
        printable(title),
        ""
    );
    for line in lines.iter().flat_map(|line| wrapped(&printable(line), BOX_COLUMNS)) {
        text.push_str(&format!("* {line:<BOX_COLUMNS$} *\n"));
    }
    text.push_str(&format!("{rule}\n\n"));
    text
}

/// The text in lines of at most `columns` characters, cut between words where there are any.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let last = lines.len() - 1;
            let used = lines[last].chars().count();
            let gap = usize::from(used > 0);
            if used + gap + rest.len() <= columns {
                if gap == 1 {
                    lines[last].push(' ');
                }
                lines[last].extend(rest.drain(..));
            } else if used > 0 {
                lines.push(String::new());
            } else {
                lines[last].extend(rest.drain(..columns.min(rest.len())));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consoles_are_those_the_kernel_writes_to() {
        let listed =
            "tty0                 -WU (E  p  )    4:1\nttyS0                -W- (EC   a)    4:64\n../x -W- (E) 1:1\n";
        assert_eq!(names(listed), ["tty0", "ttyS0"]);
    }

    #[test]
    fn text_from_the_network_cannot_drive_the_terminal() {
        assert_eq!(printable("no\x1b[2J\r\nroot"), "no [2J  root");
    }

    #[test]
    fn a_box_keeps_its_width_whatever_is_in_it() {
        let long = "x".repeat(200);
        let text = alarm_box("CLAIM REFUSED", &["token used twice", &long]);
        assert!(text.contains("* CLAIM REFUSED"), "{text}");
        for line in text.lines().filter(|line| !line.is_empty()) {
            assert_eq!(line.chars().count(), BOX_COLUMNS + 4, "{line}");
        }
        assert_eq!(text.matches('x').count(), 200, "nothing is cut away");
    }
}
