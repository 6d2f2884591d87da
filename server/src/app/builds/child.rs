//! The program that builds: how it is started, and how it is ended with everything it started.
//!
//! It is `plumbline image build --json-progress` in a process group and, under root, a PID namespace of its own
//! (pid_namespaces(7)): when its first process ends, the kernel ends all others. It ends by itself when its standard
//! input is closed, so a server that is killed takes its build along; what does not end in time is killed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

/// Lines that may wait for the server.
const LINES_MAX: usize = 256;
/// Most bytes of a line: an error with the last words of a program is one.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How much nicer a build is than the server.
const NICENESS: &str = "10";
/// What a build takes of the server's environment.
const ENVIRONMENT: [&str; 5] = ["http_proxy", "https_proxy", "no_proxy", "PLUMBLINE_LOG", "TMPDIR"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Puts a program into the cgroup that is its first argument.
const JOIN_CGROUP: &str = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";

/// What is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// `plumbline`.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The build's cgroup.
    pub cgroup: Option<PathBuf>,
    /// Most memory of each process, where there is no cgroup.
    pub memory_bytes_max: u64,
    /// Whether it gets a PID namespace of its own, which takes root.
    pub has_namespace: bool,
}

impl Program {
    /// The words of the command line, the first of them the program that is run.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |part: &[&OsStr]| words.extend(part.iter().map(|word| (*word).to_owned()));
        if let Some(cgroup) = &self.cgroup {
            add(&["sh".as_ref(), "-c".as_ref(), JOIN_CGROUP.as_ref(), cgroup.as_ref()]);
        }
        add(&["nice".as_ref(), "-n".as_ref(), NICENESS.as_ref()]);
        add(&["prlimit".as_ref(), "--core=0".as_ref()]);
        if self.cgroup.is_none() {
            add(&[format!("--data={}", self.memory_bytes_max).as_ref()]);
        }
        if self.has_namespace {
            add(&["unshare".as_ref(), "--pid".as_ref(), "--fork".as_ref()]);
            add(&["--kill-child".as_ref(), "--mount-proc".as_ref()]);
        }
        add(&[self.path.as_ref()]);
        words.extend(self.arguments.iter().cloned());
        words
    }
}

/// What comes from a build.
#[derive(Debug)]
pub enum Spoken {
    /// A line on standard output: an event.
    Output(String),
    /// A line on standard error: a panic, a log.
    Error(String),
}

/// A build that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<Spoken>,
}

impl Running {
    /// Starts a program.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(program: &Program) -> std::io::Result<Self> {
        let mut words = program.words().into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/root")
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut child = command.spawn()?;
        let (sender, lines) = mpsc::channel(LINES_MAX);
        if let Some(output) = child.stdout.take() {
            tokio::spawn(read_lines(output, sender.clone(), Spoken::Output));
        }
        if let Some(errors) = child.stderr.take() {
            tokio::spawn(read_lines(errors, sender, Spoken::Error));
        }
        let input = child.stdin.take();
        Ok(Self { child, input, lines })
    }

    /// The next line; none when it will say nothing more.
    pub async fn next(&mut self) -> Option<Spoken> {
        self.lines.recv().await
    }

    /// Asks it to end.
    pub fn ask_to_end(&mut self) {
        self.input = None;
    }

    /// Waits until it has ended, kills what has not after this time, and says how it ended, for people.
    pub async fn end(&mut self, limit: Duration) -> String {
        let status = match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.kill();
                self.child.wait().await
            }
        };
        match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Kills its process group; with a namespace, all that is in it.
    pub fn kill(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_lines(from: impl AsyncRead + Unpin, sender: mpsc::Sender<Spoken>, as_spoken: fn(String) -> Spoken) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !text.is_empty() && sender.send(as_spoken(text)).await.is_err() {
            return;
        }
    }
}

/// The command line of a build.
#[must_use]
pub fn arguments(recipe_dir: &Path, data_dir: &Path, loaders_dir: &Path, agent_binary: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["image", "build", "--json-progress", "--data-dir"]
        .map(Into::into)
        .into();
    arguments.push(data_dir.into());
    arguments.push("--loaders".into());
    arguments.push(loaders_dir.into());
    if let Some(agent) = agent_binary {
        arguments.push("--agent".into());
        arguments.push(agent.into());
    }
    arguments.push("--".into());
    arguments.push(recipe_dir.into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(cgroup: Option<&str>, has_namespace: bool) -> Program {
        Program {
            path: "/usr/bin/plumbline".into(),
            arguments: arguments(Path::new("/r/x"), Path::new("/d"), Path::new("/l"), None),
            cgroup: cgroup.map(PathBuf::from),
            memory_bytes_max: 1_000,
            has_namespace,
        }
    }

    fn line(program: &Program) -> String {
        program.words().join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_build_is_started_within_its_limits() {
        assert_eq!(
            line(&program(None, true)),
            "nice -n 10 prlimit --core=0 --data=1000 unshare --pid --fork --kill-child --mount-proc /usr/bin/plumbline \
             image build --json-progress --data-dir /d --loaders /l -- /r/x"
        );
        let with = line(&program(Some("/sys/fs/cgroup/x"), false));
        assert!(
            with.starts_with(&format!("sh -c {JOIN_CGROUP} /sys/fs/cgroup/x nice"))
                && !with.contains("--data=")
                && !with.contains("unshare"),
            "{with}"
        );
    }

    fn shell(script: &str) -> Program {
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            cgroup: None,
            memory_bytes_max: 1 << 30,
            has_namespace: rustix::process::geteuid().is_root(),
        }
    }

    #[tokio::test]
    async fn what_it_says_comes_line_by_line_and_its_limits_hold() {
        let script = "echo \"$(ulimit -d) $(nice) ${PLUMBLINE_TOKEN-none}\"; echo two >&2; exit 3";
        let mut running = Running::start(&shell(script)).unwrap();
        let mut said = Vec::new();
        while let Some(line) = running.next().await {
            said.push(format!("{line:?}"));
        }
        said.sort();
        let own = rustix::process::getpriority_process(None).unwrap();
        let nice = (own + 10).min(19);
        assert_eq!(
            said,
            [
                "Error(\"two\")".to_owned(),
                format!("Output(\"{} {nice} none\")", (1 << 30) / 1024)
            ]
        );
        assert_eq!(running.end(Duration::from_secs(10)).await, "exit status: 3");
    }

    #[tokio::test]
    async fn closing_its_input_asks_and_killing_takes_all_along() {
        let mut polite = Running::start(&shell("cat; echo bye")).unwrap();
        polite.ask_to_end();
        assert!(matches!(polite.next().await, Some(Spoken::Output(line)) if line == "bye"));
        assert_eq!(polite.end(Duration::from_secs(10)).await, "exit status: 0");

        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a PID namespace needs root");
            return;
        }
        // What left the process group is ended all the same. It holds a pipe open, whose end says that nobody lives.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let script = format!("exec 3>{}; setsid sleep 600 & sleep 600", pipe.display());
        let mut deaf = Running::start(&shell(&script)).unwrap();
        let ended = tokio::task::spawn_blocking(|| std::fs::read(pipe));
        deaf.ask_to_end();
        let status = deaf.end(Duration::from_millis(500)).await;
        assert!(status.contains("signal: 9"), "{status}");
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
        assert_eq!(ended.expect("something of it lives on").unwrap().unwrap(), b"");
    }
}
