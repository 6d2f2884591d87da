//! Golden packets and golden scripts.

use netboot::dhcp::{Mode, Port, Request};
use netboot::script::{DeployerBoot, Language, boot_local, deployer, grub_start, hold, refuse};

use crate::golden::{assert_golden, bytes_from_hex, files, testdata};
use crate::support::decide;

#[test]
fn golden_packets_read_and_are_answered_as_reviewed() {
    let files = files("dhcp", "hex");
    assert!(files.len() >= 12, "only {} packets found", files.len());
    for path in files {
        let hex = std::fs::read_to_string(&path).unwrap();
        let mut bytes = bytes_from_hex(&hex);
        let text = match Request::decode(&bytes) {
            Err(error) => format!("{}: {error}\n", error.kind()),
            Ok(request) => {
                if !hex.contains("# not canonical") {
                    bytes.resize(bytes.len().max(300), 0);
                    assert_eq!(
                        request.encode().unwrap(),
                        bytes,
                        "{} is written back as it came",
                        path.display()
                    );
                }
                answers(&request, port_of(&hex))
            }
        };
        assert_golden(&path.with_extension("txt"), &text);
    }
}

/// The port that a golden packet came to.
pub fn port_of(hex: &str) -> Port {
    match hex.contains("# port 4011") {
        true => Port::Pxe4011,
        false => Port::Server67,
    }
}

/// A request, and what is decided about it in both modes.
pub fn answers(request: &Request, port: Port) -> String {
    let proxy = decide(request, Mode::Proxy, port);
    let full = decide(request, Mode::Full, port);
    format!("{request}\nproxy mode: {proxy}\nfull mode: {full}")
}

#[test]
fn golden_scripts_say_what_was_reviewed() {
    let script_url = "http://10.77.0.1:8081/boot/v1/script?mac=52:54:00:aa:00:01";
    let boot = DeployerBoot {
        http_base: "http://10.77.0.1:8081/".to_owned(),
        kernel_path: "/boot/v1/deployer/vmlinuz".to_owned(),
        initrd_paths: vec![
            "/boot/v1/deployer/initrd".to_owned(),
            "/boot/v1/agent/layer.cpio".to_owned(),
        ],
        command_line: "console=tty0 console=ttyS0,115200 BOOTIF=01-52-54-00-aa-00-01 \
                       plumbline.server=https://10.77.0.1:8443 plumbline.token=0123456789abcdef"
            .to_owned(),
        title: "gpu-001: installing debian-12-gpu".to_owned(),
        script_url: Some(script_url.to_owned()),
    };
    let nobody = "nobody listed 52:54:00:aa:00:01; approve it in the dashboard";
    let local = |language| boot_local(language, "gpu-001", "nothing to do", "PL12AB34CD");
    let held = |language| hold(language, "its cables are being replaced", script_url).unwrap();
    for (file, script) in [
        ("deployer.ipxe", deployer(Language::Ipxe, &boot).unwrap()),
        ("deployer.grub.cfg", deployer(Language::Grub, &boot).unwrap()),
        ("boot_local.ipxe", local(Language::Ipxe)),
        ("boot_local.grub.cfg", local(Language::Grub)),
        ("refuse.ipxe", refuse(Language::Ipxe, nobody)),
        ("refuse.grub.cfg", refuse(Language::Grub, nobody)),
        ("hold.ipxe", held(Language::Ipxe)),
        ("hold.grub.cfg", held(Language::Grub)),
        ("start.grub.cfg", grub_start("http://10.77.0.1:8081", "/boot/v1/grub")),
    ] {
        assert_golden(&testdata("script").join(file), &script);
    }
}
