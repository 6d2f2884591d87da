//! Process 1.
//!
//! Idea: process 1 only mounts, starts the worker (this program again), reaps, and restarts the machine when the worker
//! has ended. All that can fail runs in the worker, so a panic or a kill by the kernel is a message and a restart, never
//! "Attempted to kill init". Reaping everything here cannot steal an exit status from the worker: its children are not
//! ours until it is gone.
//!
//! Refused: reaping in the worker itself, which would have to tell its own children from orphans.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};

use super::command_line::CommandLine;
use super::console::Console;
use super::mounts;

/// Time to read the reason before the machine restarts.
pub const READING_TIME: Duration = Duration::from_secs(60);
/// First argument of the worker.
pub const WORKER: &str = "ramdisk";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs process 1 of the deployer, which never ends but with the machine.
pub fn run() -> ! {
    let problems = mounts::mount_all();
    let console = Console::of_machine();
    // Kernel messages below "error" would tear the lines a person is to read.
    let _ = std::fs::write("/proc/sys/kernel/printk", "4");
    console.stage(format!("deployer {} started", env!("CARGO_PKG_VERSION")));
    for problem in &problems {
        console.say(format!("cannot mount {problem}"));
    }
    let options = CommandLine::parse(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
    let mut shell = options.shell.then(|| start_shell(&console)).flatten();
    match start_worker() {
        Ok(worker) => {
            let status = reap_until(worker.id(), &mut shell, &console);
            console.alarm(
                "THE DEPLOYER STOPPED",
                &[&format!("Its process ended: {status}."), ending(options.shell)],
            );
        }
        Err(error) => console.alarm(
            "THE DEPLOYER DOES NOT START",
            &[&format!("/proc/self/exe: {error}"), ending(options.shell)],
        ),
    }
    console.flush(Duration::from_secs(2));
    loop {
        std::thread::sleep(READING_TIME);
        // With a shell somebody wants to look: the machine stays until they restart it.
        if !options.shell {
            restart();
        }
    }
}

const fn ending(shell: bool) -> &'static str {
    if shell {
        "The machine stays as it is, because a shell was asked for."
    } else {
        "The machine restarts in 60 seconds."
    }
}

/// Flushes all filesystems and restarts the machine.
pub fn restart() {
    rustix::fs::sync();
    if let Err(error) = reboot(RebootCommand::Restart) {
        tracing::error!(%error, "restart");
    }
}

fn start_worker() -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(WORKER)
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("LC_ALL", "C");
    command.stdin(Stdio::null());
    if let Ok(console) = OpenOptions::new().write(true).open("/dev/console") {
        command.stdout(console.try_clone()?).stderr(console);
    }
    command.spawn()
}

/// Waits for children of all kinds until the worker is gone; says how it ended.
fn reap_until(worker: u32, shell: &mut Option<Child>, console: &Console) -> String {
    let is = |pid: Pid, id: u32| u32::try_from(pid.as_raw_nonzero().get()) == Ok(id);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if is(pid, worker) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (_, Some(signal)) => format!("signal {signal}"),
                    _ => "no status".to_owned(),
                };
            }
            Ok(Some((pid, _))) if shell.as_ref().is_some_and(|shell| is(pid, shell.id())) => {
                *shell = start_shell(console);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("waiting for it failed: {error}"),
        }
    }
}

/// A shell on the console, with a terminal of its own so that Ctrl-C works in it.
pub fn start_shell(console: &Console) -> Option<Child> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/console").ok()?;
    let started = Command::new("setsid")
        .args(["cttyhack", "sh"])
        .env("PATH", PATH)
        .env("HOME", "/root")
        .stdin(terminal.try_clone().ok()?)
        .stdout(terminal.try_clone().ok()?)
        .stderr(terminal)
        .spawn();
    started
        .inspect_err(|error| console.say(format!("no shell: {error}")))
        .ok()
}
