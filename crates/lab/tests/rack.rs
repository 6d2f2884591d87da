//! A rack on this machine: a real namespace, real firmware. Needs root; without it each test says so and passes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use lab::command::run_checked;
use lab::forward::Forward;
use lab::netns::NetworkNamespace;
use lab::process::Supervised;
use lab::qemu::{BootProtocol, DiskBus, Firmware, Machine, MachineSpec};
use lab::wait::wait_until;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// Ten seconds on an idle machine; emulated firmware gets slow when tests share the processors.
const FIRMWARE_LIMIT: Duration = Duration::from_secs(180);

fn without_root() -> bool {
    let missing = !rustix::process::geteuid().is_root();
    if missing {
        eprintln!("skipped: a network namespace needs root");
    }
    missing
}

/// What `cargo xtask setup` fetched.
fn ovmf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.plumbline/firmware")
}

fn namespace_exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

#[test]
fn a_namespace_has_the_bridge_and_goes_with_everything_inside() {
    if without_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = NetworkNamespace::create_unique("test-drop").unwrap();
    let name = namespace.name().to_owned();
    namespace.add_tap("tap1").unwrap();
    let links = run_checked(namespace.command("ip").args(["-brief", "address"]), LIMIT).unwrap();
    assert!(
        links.contains("br0") && links.contains("10.77.0.1/24") && links.contains("tap1"),
        "{links}"
    );

    // A process nobody supervises, as a killed server would leave it.
    let mut script = namespace.command("sh");
    script.args(["-c", "sleep 300 & echo $!; wait"]);
    let mut process = Supervised::spawn("orphan maker", script, &folder.path().join("log")).unwrap();
    let orphan = PathBuf::from("/proc").join(process.wait_line("", LIMIT).unwrap());
    process.kill().unwrap();
    assert!(orphan.exists());

    drop(namespace);
    assert!(!namespace_exists(&name));
    let gone = wait_until(LIMIT, "the orphan to end", || Ok((!runs(&orphan)).then_some(())));
    gone.unwrap();
}

/// A zombie that nobody has reaped yet no longer runs.
fn runs(proc_path: &Path) -> bool {
    std::fs::read_to_string(proc_path.join("status")).is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn a_stale_namespace_is_replaced_and_a_held_one_is_not() {
    if without_root() {
        return;
    }
    let name = format!("plumb-test-stale-{}", std::process::id());
    run_checked(Command::new("ip").args(["netns", "add", &name]), LIMIT).unwrap();
    let namespace = NetworkNamespace::create(&name).unwrap();
    let error = NetworkNamespace::create(&name).unwrap_err();
    assert!(format!("{error:#}").contains("another run holds"), "{error:#}");
    assert!(namespace_exists(&name));
    drop(namespace);
    assert!(!namespace_exists(&name));
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_run() {
    if without_root() {
        return;
    }
    // A namespace and its lock file, and no process that holds the lock.
    let name = format!("plumb-test-abandoned-{}", std::process::id());
    std::fs::create_dir_all("/run/plumbline-lab").unwrap();
    std::fs::write(format!("/run/plumbline-lab/{name}.lock"), "").unwrap();
    run_checked(Command::new("ip").args(["netns", "add", &name]), LIMIT).unwrap();
    let held = NetworkNamespace::create_unique("test-held").unwrap();
    // Another test's sweep may have taken it up first and be at it.
    wait_until(LIMIT, "the abandoned namespace to go", || {
        Ok((!namespace_exists(&name)).then_some(()))
    })
    .unwrap();
    let _other = NetworkNamespace::create_unique("test-other").unwrap();
    assert!(namespace_exists(held.name()), "a held one stays");
}

#[test]
fn a_browser_outside_reaches_a_server_inside() {
    if without_root() {
        return;
    }
    let namespace = NetworkNamespace::create_unique("test-fwd").unwrap();
    let listener = namespace
        .enter(|| Ok(TcpListener::bind((Ipv4Addr::new(10, 77, 0, 1), 0))?))
        .unwrap();
    let target = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        stream.read_to_string(&mut request).unwrap();
        stream.write_all(format!("{request} pong").as_bytes()).unwrap();
    });
    let forward = Forward::start(&namespace, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), target).unwrap();
    let mut stream = TcpStream::connect(forward.address()).unwrap();
    stream.write_all(b"ping").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "ping pong");
    server.join().unwrap();
    let address = forward.address();
    drop(forward);
    assert!(TcpStream::connect(address).is_err(), "the listener must close");
}

#[test]
fn uefi_firmware_speaks_on_the_console_and_asks_the_network() {
    if without_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = NetworkNamespace::create_unique("test-uefi").unwrap();
    let spec = MachineSpec {
        cpus: 1,
        ..MachineSpec::numbered(1, &ovmf())
    };
    let spec = spec.with_disk(folder.path(), 1 << 30, DiskBus::Virtio);
    let mut machine = Machine::prepare(spec, &namespace, folder.path()).unwrap();
    machine.power_on().unwrap();
    assert!(machine.power_on().is_err(), "a machine is switched on once");
    machine.wait_serial(">>Start PXE over IPv4", FIRMWARE_LIMIT).unwrap();
    assert!(
        machine.rss_mib().is_some_and(|rss_mib| rss_mib > 20),
        "{:?}",
        machine.rss_mib()
    );

    let before_reset = machine.serial_size_bytes();
    machine.reset().unwrap();
    machine
        .wait_serial_from(before_reset, ">>Start PXE over IPv4", FIRMWARE_LIMIT)
        .unwrap();

    machine.power_off().unwrap();
    assert!(!machine.is_running().unwrap());
    assert!(machine.reset().is_err(), "a machine that is off has no reset");
    assert!(machine.rss_mib().is_none());
}

#[test]
fn http_boot_firmware_skips_pxe() {
    if without_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = NetworkNamespace::create_unique("test-http").unwrap();
    let spec = MachineSpec {
        cpus: 1,
        boot_protocol: BootProtocol::Http,
        ..MachineSpec::numbered(1, &ovmf())
    };
    let mut machine = Machine::prepare(spec, &namespace, folder.path()).unwrap();
    machine.power_on().unwrap();
    machine
        .wait_serial(">>Start HTTP Boot over IPv4", FIRMWARE_LIMIT)
        .unwrap();
    assert!(!machine.serial_text().contains("PXE over"), "{}", machine.serial_text());
    machine.power_off().unwrap();
}

#[test]
fn secure_boot_firmware_speaks_on_the_console_and_asks_the_network() {
    if without_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = NetworkNamespace::create_unique("test-secure").unwrap();
    let spec = MachineSpec {
        cpus: 1,
        firmware: Firmware::UefiSecureBoot,
        ..MachineSpec::numbered(1, &ovmf())
    };
    let mut machine = Machine::prepare(spec, &namespace, folder.path()).unwrap();
    machine.power_on().unwrap();
    machine.wait_serial(">>Start PXE over IPv4", FIRMWARE_LIMIT).unwrap();
    machine.power_off().unwrap();
}

#[test]
fn bios_firmware_speaks_on_the_console_and_asks_the_network() {
    if without_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = NetworkNamespace::create_unique("test-bios").unwrap();
    let spec = MachineSpec {
        cpus: 1,
        firmware: Firmware::Bios,
        ..MachineSpec::numbered(1, &ovmf())
    };
    let mut machine = Machine::prepare(spec, &namespace, folder.path()).unwrap();
    machine.power_on().unwrap();
    machine.wait_serial("iPXE", FIRMWARE_LIMIT).unwrap();
    machine.power_off().unwrap();
}
