//! What a build's words come to, and how it ended: decisions from values alone.

use manifest::Digest;
use store::{BuildCount, BuildEnd, BuildProgress};

use super::child::Spoken;
use crate::config::BuildLimits;
use crate::image::BuildEvent;

/// Most bytes of an error that are kept; of a longer one the middle is left out.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// Of which so many are its beginning.
const ERROR_HEAD_BYTES: usize = 4 << 10;

/// Why the server ends a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody wants it to.
    Cancelled,
    /// It took too long.
    TimedOut,
    /// The server itself ends.
    ServerEnds,
}

/// What a build has said so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Where it is.
    pub progress: BuildProgress,
    /// What it said of its end.
    pub result: Option<Result<Digest, String>>,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    pub stage: String,
    pub text: String,
}

impl Heard {
    /// Takes a line, and gives what belongs in the log.
    pub fn take(&mut self, spoken: Spoken) -> Option<LogLine> {
        let line = match spoken {
            Spoken::Error(text) => return Some(self.log_line("", text)),
            Spoken::Output(line) => line,
        };
        // What is no event is kept as it is: whoever looks for a fault wants to see it.
        let Ok(event) = serde_json::from_str::<BuildEvent>(&line) else {
            return Some(self.log_line("", line));
        };
        match event {
            BuildEvent::Report { stage, detail } => {
                if self.progress.stage != stage {
                    self.progress.count = None;
                }
                self.progress.stage = stage;
                self.progress.detail = detail;
                None
            }
            BuildEvent::Count {
                stage,
                done,
                total,
                unit,
            } => {
                self.progress.stage = stage;
                self.progress.count = Some(BuildCount {
                    done: i64::try_from(done).unwrap_or(i64::MAX),
                    total: total.map(|total| i64::try_from(total).unwrap_or(i64::MAX)),
                    unit,
                });
                None
            }
            BuildEvent::Output { stage, line } => Some(self.log_line(&stage, line)),
            BuildEvent::Built { digest, .. } => {
                let digest = digest.parse::<Digest>();
                self.result = Some(digest.map_err(|error| format!("the build named an image that is none: {error}")));
                None
            }
            BuildEvent::Failed { error } => {
                self.result = Some(Err(error));
                None
            }
        }
    }

    fn log_line(&self, stage: &str, text: String) -> LogLine {
        let stage = if stage.is_empty() { &self.progress.stage } else { stage };
        LogLine {
            stage: stage.to_owned(),
            text,
        }
    }
}

/// How a build ended: by its words, by what the server did to it, and by how its process ended.
pub(super) fn ended(
    heard: &Heard,
    stop: Option<Stop>,
    status: &str,
    ran_out_of_memory: bool,
    limits: &BuildLimits,
) -> BuildEnd {
    // An image that is in the store is one, whatever came after.
    if let Some(Ok(image)) = heard.result {
        return BuildEnd::Done(image);
    }
    let at = match heard.progress.stage.as_str() {
        "" => String::new(),
        stage => format!(", at: {stage} {}", heard.progress.detail),
    };
    match stop {
        Some(Stop::Cancelled) => return BuildEnd::Cancelled,
        Some(Stop::TimedOut) => {
            let secs = limits.secs_max;
            return BuildEnd::Failed(format!(
                "it took longer than {secs} s (images.builds.secs_max) and was ended{at}"
            ));
        }
        Some(Stop::ServerEnds) => return BuildEnd::Failed(format!("interrupted: the server was stopped{at}")),
        None => {}
    }
    let said = match &heard.result {
        Some(Err(error)) => error.trim().to_owned(),
        _ => format!("the build's process ended ({status}) without saying why{at}; its log has its last words"),
    };
    let memory = match ran_out_of_memory {
        true => format!(
            "it needed more than {} bytes of memory (images.builds.memory_bytes_max): ",
            limits.memory_bytes_max
        ),
        false => String::new(),
    };
    BuildEnd::Failed(shortened(&format!("{memory}{said}")))
}

/// A text without its middle, where it is too long: the cause stands at one of its ends.
fn shortened(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    let mut head = ERROR_HEAD_BYTES;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - (ERROR_BYTES_MAX - ERROR_HEAD_BYTES);
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n…\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> BuildLimits {
        BuildLimits {
            queued_max: 1,
            secs_max: 60,
            memory_bytes_max: 1_000,
            cpu_percent_max: None,
            free_bytes_min: 0,
        }
    }

    fn output(line: &str) -> Spoken {
        Spoken::Output(line.to_owned())
    }

    #[test]
    fn words_become_progress_and_log() {
        let mut heard = Heard::default();
        assert_eq!(
            heard.take(output(r#"{"event":"report","stage":"packages","detail":"2 packages"}"#)),
            None
        );
        let count = r#"{"event":"count","stage":"packages","done":3,"total":9,"unit":"packages"}"#;
        assert_eq!(heard.take(output(count)), None);
        assert_eq!(heard.progress.count.as_ref().unwrap().total, Some(9));
        let line = heard.take(output(r#"{"event":"output","stage":"packages","line":"Setting up x"}"#));
        assert_eq!(line.unwrap().text, "Setting up x");
        assert!(heard.progress.count.is_some(), "the same stage goes on");
        heard.take(output(r#"{"event":"report","stage":"walk","detail":"1 path"}"#));
        assert_eq!(heard.progress.count, None, "another one begins at nothing");
        // What nobody planned is kept, at the stage that it came in.
        for strange in [output("{\"event\":\"sing\"}"), Spoken::Error("panicked".to_owned())] {
            assert_eq!(heard.take(strange).unwrap().stage, "walk");
        }
        heard.take(output(r#"{"event":"built","digest":"zz","name":"x","version":"1"}"#));
        assert!(matches!(&heard.result, Some(Err(error)) if error.contains("an image that is none")));
    }

    #[test]
    fn an_end_is_told_by_what_caused_it() {
        let image = Digest::of(b"image");
        let at_pack = |result| Heard {
            progress: BuildProgress {
                stage: "pack".to_owned(),
                detail: "3 of 9 MB".to_owned(),
                ..BuildProgress::default()
            },
            result,
        };
        let end = |result, stop, oom| ended(&at_pack(result), stop, "signal: 9", oom, &limits());
        let reason = |end| match end {
            BuildEnd::Failed(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(end(Some(Ok(image)), None, false), BuildEnd::Done(image));
        assert_eq!(
            end(Some(Ok(image)), Some(Stop::Cancelled), false),
            BuildEnd::Done(image),
            "the image was there first"
        );
        assert_eq!(end(None, Some(Stop::Cancelled), false), BuildEnd::Cancelled);
        let stopped = Some(Err("the build was stopped".to_owned()));
        assert_eq!(end(stopped.clone(), Some(Stop::Cancelled), false), BuildEnd::Cancelled);
        let timed_out = reason(end(stopped.clone(), Some(Stop::TimedOut), false));
        assert!(
            timed_out.contains("longer than 60 s (images.builds.secs_max)") && timed_out.ends_with("pack 3 of 9 MB"),
            "{timed_out}"
        );
        assert!(reason(end(stopped, Some(Stop::ServerEnds), false)).starts_with("interrupted: "));
        assert_eq!(
            reason(end(Some(Err("no mirror\n".to_owned())), None, false)),
            "no mirror"
        );
        let crashed = reason(end(None, None, false));
        assert!(
            crashed.contains("(signal: 9) without saying why, at: pack"),
            "{crashed}"
        );
        let memory = reason(end(None, None, true));
        assert!(
            memory.contains("1000 bytes of memory (images.builds.memory_bytes_max)"),
            "{memory}"
        );
    }

    #[test]
    fn of_a_long_error_both_ends_stay() {
        let long = format!("mmdebstrap failed{}E: no space left", "ü".repeat(20_000));
        let short = shortened(&long);
        assert!(short.len() <= ERROR_BYTES_MAX + 8, "{} bytes", short.len());
        assert!(short.starts_with("mmdebstrap failed") && short.ends_with("E: no space left"));
    }
}
