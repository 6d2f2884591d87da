//! The address of the interface that the machine booted from.
//!
//! Idea: a DHCP client (busybox's `udhcpc`, decision 0009) asks, and a script brings the interface in line with what it was
//! given. The client takes whichever offer comes first. Where the appliance gives the addresses itself, its script told the
//! loader which lease is the machine's own; one of another server is put aside, and asked for is again. When the other
//! server is always faster, the machine uses the address that it has at the appliance without asking (decision 0015).
//!
//! Invariant: where the appliance said whose leases count, no other server's address is ever set on the interface. Where it
//! said nothing, the site gives the addresses, and every server is right.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::command_line::LeaseWanted;
use super::console::Console;
use crate::deploy::program::run_ok;

/// How often a person is told what is waited for.
const NEWS: Duration = Duration::from_secs(10);
/// Where the lease script leaves the facts of a lease.
const RUN: &str = "/run/plumbline";
/// The lease that is in force.
const LEASE: &str = "lease";
/// One that was not taken, since another server gave it.
const FOREIGN: &str = "foreign-lease";
const SCRIPT: &str = "/usr/share/udhcpc/default.script";
const POLL: Duration = Duration::from_millis(250);
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// Leases of another server that are put aside before the address that is known is used: it wins every time, then.
const FOREIGN_MAX: u32 = 3;

/// What follows from a lease of another server.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Ask again.
    Ask,
    /// Use the address that the machine has at the appliance.
    Use(Ipv4Addr, u8),
}

/// Decides after the `count`th lease of another server.
fn after_foreign(count: u32, wanted: &LeaseWanted) -> Next {
    match wanted.address {
        Some((address, prefix)) if count >= FOREIGN_MAX => Next::Use(address, prefix),
        _ => Next::Ask,
    }
}

/// The DHCP client, which stays for renewals: a machine may wait for its approval for hours.
#[derive(Debug)]
pub struct Lease {
    interface: String,
    wanted: LeaseWanted,
    client: Option<Child>,
    /// The address was set without asking: a client would only lose it again.
    is_set: bool,
}

impl Lease {
    /// Brings the interface up and waits for the first lease, however long it takes, telling a person why. Blocks.
    ///
    /// # Errors
    /// When the interface cannot be brought up, or the client cannot be started.
    pub fn first(interface: &str, wanted: LeaseWanted, console: &Console) -> Result<Self, String> {
        run_ok("ip", &["link", "set", "dev", interface, "up"], COMMAND_LIMIT).map_err(|e| e.to_string())?;
        let mut lease = Self {
            interface: interface.to_owned(),
            wanted,
            client: None,
            is_set: false,
        };
        let start = Instant::now();
        let mut told = Instant::now();
        let mut foreign = 0;
        lease.keep()?;
        while !file(LEASE).exists() {
            if let Ok(facts) = std::fs::read_to_string(file(FOREIGN)) {
                foreign += 1;
                lease.put_aside(foreign, &facts, console)?;
            }
            if told.elapsed() > NEWS {
                told = Instant::now();
                let carrier = std::fs::read_to_string(format!("/sys/class/net/{interface}/carrier"));
                let why = if carrier.is_ok_and(|text| text.trim() == "1") {
                    "the link is up, but no DHCP server answers"
                } else {
                    "the interface has NO LINK: check the cable and the switch port"
                };
                console.say(format!(
                    "waiting for an address on {interface} ({} s): {why}",
                    start.elapsed().as_secs()
                ));
            }
            lease.keep()?;
            std::thread::sleep(POLL);
        }
        Ok(lease)
    }

    /// Starts the client again if it has ended.
    ///
    /// # Errors
    /// When it does not start.
    pub fn keep(&mut self) -> Result<(), String> {
        if self.is_set {
            return Ok(());
        }
        if let Some(client) = &mut self.client
            && matches!(client.try_wait(), Ok(None))
        {
            return Ok(());
        }
        // -f: foreground; three requests, 3 s apart, then 5 s of silence, for ever. Renewals are the client's own.
        let arguments = [
            "-f",
            "-i",
            &self.interface,
            "-t",
            "3",
            "-T",
            "3",
            "-A",
            "5",
            "-O",
            "staticroutes",
            "-O",
            "mtu",
            "-O",
            "ntpsrv",
            "-s",
            SCRIPT,
        ];
        let started = Command::new("udhcpc")
            .args(arguments)
            .env("PLUMBLINE_DHCP", words(&self.wanted.servers))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.client = Some(started.map_err(|error| format!("udhcpc does not start: {error}"))?);
        Ok(())
    }

    /// Ends the client that took another server's offer, and goes on without that offer.
    fn put_aside(&mut self, count: u32, facts: &str, console: &Console) -> Result<(), String> {
        let (server, address) = (fact(facts, "server"), fact(facts, "address"));
        console.say(format!(
            "ANOTHER DHCP SERVER, {server}, offered {address}, and that is not this network's address: put aside"
        ));
        if let Some(mut client) = self.client.take() {
            // It is not bound to anything that would have to be given back.
            let _already_ended = client.kill();
            let _reaped = client.wait();
        }
        std::fs::remove_file(file(FOREIGN)).map_err(|error| format!("{FOREIGN} cannot be removed: {error}"))?;
        if let Next::Use(address, prefix) = after_foreign(count, &self.wanted) {
            console.say(format!(
                "{server} was faster {count} times: using {address}, which this machine has at the appliance, without asking"
            ));
            self.set(address, prefix)?;
        }
        Ok(())
    }

    fn set(&mut self, address: Ipv4Addr, prefix: u8) -> Result<(), String> {
        let ip = |arguments: &[&str]| {
            let done = run_ok("ip", arguments, COMMAND_LIMIT);
            done.map(drop).map_err(|error| error.to_string())
        };
        let text = format!("{address}/{prefix}");
        ip(&["-4", "address", "replace", &text, "dev", &self.interface])?;
        let router = self.wanted.router.map(|router| router.to_string());
        if let Some(router) = &router {
            ip(&[
                "-4",
                "route",
                "replace",
                "default",
                "via",
                router,
                "dev",
                &self.interface,
                "onlink",
            ])?;
        }
        let facts = format!(
            "interface={}\naddress={text}\nrouters={}\nserver={}\n",
            self.interface,
            router.unwrap_or_default(),
            words(&self.wanted.servers)
        );
        std::fs::create_dir_all(RUN).map_err(|error| format!("{RUN}: {error}"))?;
        std::fs::write(file(LEASE), facts).map_err(|error| format!("{RUN}/{LEASE}: {error}"))?;
        self.is_set = true;
        Ok(())
    }

    /// The address of the lease, for a person.
    #[must_use]
    pub fn address() -> String {
        fact(&std::fs::read_to_string(file(LEASE)).unwrap_or_default(), "address")
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(RUN).join(name)
}

/// The servers as the script reads them: with spaces between.
fn words(servers: &[Ipv4Addr]) -> String {
    let servers: Vec<String> = servers.iter().map(Ipv4Addr::to_string).collect();
    servers.join(" ")
}

fn fact(facts: &str, name: &str) -> String {
    let value = facts
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.filter(|value| !value.is_empty()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> LeaseWanted {
        LeaseWanted {
            servers: vec![[10, 77, 0, 1].into()],
            address: Some(([10, 77, 0, 100].into(), 24)),
            router: None,
        }
    }

    #[test]
    fn a_server_that_always_wins_is_given_up_on_after_three_times() {
        assert_eq!(after_foreign(1, &wanted()), Next::Ask);
        assert_eq!(after_foreign(2, &wanted()), Next::Ask);
        assert_eq!(after_foreign(3, &wanted()), Next::Use([10, 77, 0, 100].into(), 24));
        let unknown = LeaseWanted {
            address: None,
            ..wanted()
        };
        assert_eq!(after_foreign(9, &unknown), Next::Ask, "there is nothing else to use");
    }

    /// Runs the client's script as the client does; gives the calls of `ip`, and the files that it left.
    fn script(server: &str, only: Option<&str>) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "etc"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("bin/ip"), "#!/bin/sh\necho \"$*\" >>\"$CALLS\"\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path("bin/ip"), mode).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../images/deployer/files")
            .join(&SCRIPT[1..]);
        let mut command = Command::new("/bin/sh");
        command
            .arg(script)
            .arg("bound")
            .env("PATH", format!("{}:/usr/bin:/bin", path("bin").display()))
            .env("CALLS", path("calls"))
            .env("PLUMBLINE_RUN", path("run"))
            .env("PLUMBLINE_ETC", path("etc"))
            .envs([
                ("interface", "eth0"),
                ("ip", "10.77.0.150"),
                ("mask", "24"),
                ("serverid", server),
            ]);
        if let Some(only) = only {
            command.env("PLUMBLINE_DHCP", only);
        }
        assert!(command.status().unwrap().success());
        let left = std::fs::read_dir(path("run")).unwrap();
        let mut left: Vec<String> = left
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        (std::fs::read_to_string(path("calls")).unwrap_or_default(), left)
    }

    #[test]
    fn the_script_sets_no_address_of_another_server() {
        let (calls, left) = script("10.77.0.2", Some("10.77.0.1 10.87.0.5"));
        assert_eq!((calls.as_str(), left), ("", vec![FOREIGN.to_owned()]));
        for (server, only) in [
            ("10.77.0.1", Some("10.77.0.1 10.87.0.5")),
            ("10.87.0.5", Some("10.77.0.1 10.87.0.5")),
            ("10.77.0.2", Some("")),
            ("10.77.0.2", None),
        ] {
            let (calls, left) = script(server, only);
            assert!(
                calls.contains("address replace 10.77.0.150/24 dev eth0"),
                "{server} {only:?}: {calls}"
            );
            assert_eq!(left, [LEASE], "{server} {only:?}");
        }
        let (_, left) = script("10.77.0.11", Some("10.77.0.1"));
        assert_eq!(left, [FOREIGN], "the beginning of an address is another address");
    }

    #[test]
    fn facts_are_read_by_their_whole_names() {
        let facts = "interface=eth0\naddress=10.77.0.150/24\nserver=10.77.0.2\nhostname=gpu-001\ndomain=\n";
        assert_eq!(fact(facts, "server"), "10.77.0.2");
        assert_eq!(fact(facts, "address"), "10.77.0.150/24");
        assert_eq!(fact(facts, "domain"), "unknown");
        assert_eq!(
            fact(facts, "host"),
            "unknown",
            "the beginning of a name is another name"
        );
    }
}
