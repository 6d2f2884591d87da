use manifest::{Header, Kernel, Manifest, ManifestKind, Unit};

use super::*;
use crate::{Expected, ObservedRules, RuleProblem};

fn package(name: &str, version: &str) -> Package {
    Package {
        name: name.to_owned(),
        architecture: "amd64".to_owned(),
        version: version.to_owned(),
    }
}

fn user(name: &str, uid: u32, shell: &str) -> User {
    User {
        name: name.to_owned(),
        uid,
        gid: uid,
        home: format!("/home/{name}"),
        shell: shell.to_owned(),
    }
}

fn group(name: &str, members: &[&str]) -> Group {
    Group {
        name: name.to_owned(),
        gid: 27,
        members: members.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn kernel(line: &str) -> Kernel {
    Kernel {
        release: "6.1.0-37-amd64".to_owned(),
        image: "/boot/vmlinuz".parse().unwrap(),
        initramfs: "/boot/initrd.img".parse().unwrap(),
        command_line: line.to_owned(),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn expected() -> ExpectedFacts {
    let mut image = Header::new(ManifestKind::Os, "x", "1");
    image.packages = vec![package("bash", "5.2-1"), package("openssh-server", "1:9.2")];
    image.units = ["ssh.service enabled", "getty@.service enabled", "apt.timer masked"]
        .iter()
        .map(|line| {
            let (name, state) = line.split_once(' ').unwrap();
            Unit {
                name: name.to_owned(),
                state: state.to_owned(),
            }
        })
        .collect();
    image.sysctls = pairs(&[
        ("kernel.printk", "4 4 1 7"),
        ("net.core.somaxconn", "4096"),
        ("kernel.modprobe", ""),
    ]);
    image.modules_required = vec!["nvme-core".to_owned(), "ext4".to_owned()];
    image.modules_forbidden = vec!["rds".to_owned()];
    image.users = vec![user("root", 0, "/bin/bash"), user("ops", 1000, "/bin/bash")];
    image.groups = vec![group("sudo", &["adam", "zoe"])];
    image.kernel = Some(kernel("console=tty0 console=ttyS0,115200 ro"));
    let mut overlay = Header::new(ManifestKind::Overlay, "x", "1");
    overlay.units = vec![Unit {
        name: "apt.timer".to_owned(),
        state: "disabled".to_owned(),
    }];
    overlay.sysctls = pairs(&[("net.core.somaxconn", "8192")]);
    overlay.kernel = Some(kernel(
        "console=tty0 console=ttyS0,115200 ro console=ttyS1,115200 iommu=pt",
    ));
    let manifests = [image, overlay].map(|header| Manifest::new(header, Vec::new()).unwrap());
    Expected::from_manifests(&manifests).unwrap().facts().clone()
}

fn clean() -> ObservedFacts {
    ObservedFacts {
        packages: Ok(vec![package("openssh-server", "1:9.2"), package("bash", "5.2-1")]),
        units: Ok(pairs(&[
            ("ssh.service", "enabled"),
            ("getty@.service", "enabled"),
            ("apt.timer", "disabled"),
            ("boot.mount", "generated"),
        ])),
        sysctls_running: [
            ("kernel.printk", "4\t4\t1\t7\n"),
            ("net.core.somaxconn", "8192"),
            ("kernel.modprobe", "\n"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), Ok(Some(value.to_owned()))))
        .collect(),
        sysctls_persisted: Ok(pairs(&[
            ("kernel.printk", "4 4  1 7"),
            ("net.core.somaxconn", "8192"),
            ("kernel.modprobe", ""),
            ("vm.swappiness", "1"),
        ])),
        command_line: Ok(
            "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro console=tty0 iommu=pt console=ttyS0,115200 \
            console=ttyS1,115200 plumbline.x=1 BOOTIF=01-52 initrd=x\n"
                .to_owned(),
        ),
        kernel_release: Ok("6.1.0-37-amd64\n".to_owned()),
        modules: Ok([
            ("nvme_core", ModuleState::Loaded),
            ("ext4", ModuleState::BuiltIn),
            ("xfs", ModuleState::Loaded),
        ]
        .into_iter()
        .map(|(name, state)| (name.to_owned(), state))
        .collect()),
        users: Ok(vec![user("ops", 1000, "/bin/bash"), user("root", 0, "/bin/bash")]),
        groups: Ok(vec![group("sudo", &["zoe", "adam"])]),
        hardening: Ok(ObservedRules::default()),
    }
}

fn lines(findings: &FactFindings) -> Vec<String> {
    let side = |value: &Option<Attributes>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
    let differences = findings.differences.iter().map(|d| {
        format!(
            "{} {}: {} > {}",
            d.kind.as_str(),
            d.key,
            side(&d.expected),
            side(&d.actual)
        )
    });
    let unknown = findings
        .unknown
        .iter()
        .map(|u| format!("{} {}? {}", u.kind.as_str(), u.key, u.observation.name()));
    differences.chain(unknown).collect()
}

fn changed(change: impl FnOnce(&mut ObservedFacts)) -> Vec<String> {
    let mut observed = clean();
    change(&mut observed);
    lines(&compare_facts(&expected(), &observed))
}

#[test]
fn a_node_as_it_should_be_has_no_findings() {
    let findings = compare_facts(&expected(), &clean());
    assert_eq!(lines(&findings), [""; 0]);
    assert_eq!(findings.facts_by_kind.len(), 9);
    assert_eq!(findings.facts_by_kind[&FindingKind::Unit], 3);
}

#[test]
fn packages_come_go_and_change() {
    let found = changed(|node| {
        node.packages = Ok(vec![package("bash", "5.2-2"), package("evil\n", "1")]);
    });
    assert_eq!(
        found,
        [
            "package bash:amd64: version=5.2-1 > version=5.2-2",
            "package evil\\x0a:amd64: - > version=1",
            "package openssh-server:amd64: version=1:9.2 > -",
        ]
    );
}

#[test]
fn units_have_the_state_the_last_manifest_says() {
    let found = changed(|node| {
        node.units = Ok(pairs(&[("ssh.service", "disabled"), ("apt.timer", "masked")]));
    });
    assert_eq!(
        found,
        [
            "unit apt.timer: state=disabled > state=masked",
            "unit getty@.service: state=enabled > -",
            "unit ssh.service: state=enabled > state=disabled",
        ]
    );
}

#[test]
fn what_a_generator_pulls_in_for_one_boot_is_no_drift() {
    let mut expected = expected();
    let mut observed = clean();
    let mut of = |should: &str, is: &str| {
        expected.units = pairs(&[("x.service", should)]);
        observed.units = Ok(pairs(&[("x.service", is)]));
        compare_facts(&expected, &observed).differences.is_empty()
    };
    assert!(of("static", "enabled-runtime") && of("disabled", "enabled-runtime"));
    assert!(!of("static", "enabled") && !of("enabled", "enabled-runtime") && !of("masked", "enabled-runtime"));
    assert!(!of("enabled", "masked-runtime") && !of("static", "masked-runtime"));
}

/// ComplianceAsCode/content#4386: masked is not disabled, nor the other way round.
#[test]
fn compliance_4386_masked_is_not_disabled() {
    let mut expected = expected();
    let mut observed = clean();
    let mut differs = |should: &str, is: &str| {
        expected.units = pairs(&[("x.service", should)]);
        observed.units = Ok(pairs(&[("x.service", is)]));
        !compare_facts(&expected, &observed).differences.is_empty()
    };
    assert!(differs("disabled", "masked") && differs("masked", "disabled") && differs("masked", "enabled"));
    assert!(!differs("masked", "masked") && !differs("disabled", "disabled"));
}

/// inspec/inspec PR#637: `static` is a state of its own, neither enabled nor disabled.
#[test]
fn inspec_637_static_is_a_state_of_its_own() {
    let mut expected = expected();
    let mut observed = clean();
    let mut of = |should: &str, is: &str| {
        expected.units = pairs(&[("x.service", should)]);
        observed.units = Ok(pairs(&[("x.service", is)]));
        lines(&compare_facts(&expected, &observed))
    };
    assert_eq!(of("static", "static"), [""; 0]);
    assert_eq!(
        of("enabled", "static"),
        ["unit x.service: state=enabled > state=static"]
    );
    assert_eq!(
        of("static", "disabled"),
        ["unit x.service: state=static > state=disabled"]
    );
}

/// ansible/ansible-modules-core PR#1877: instances of a template are units of their own.
#[test]
fn ansible_1877_an_instance_is_a_unit_of_its_own() {
    let mut expected = expected();
    let mut observed = clean();
    let mut of = |should: &[(&str, &str)], is: &[(&str, &str)]| {
        (expected.units, observed.units) = (pairs(should), Ok(pairs(is)));
        lines(&compare_facts(&expected, &observed))
    };
    let should = [
        ("x@.service", "disabled"),
        ("x@1.service", "enabled"),
        ("x@2.service", "masked"),
    ];
    let is = [
        ("x@.service", "indirect"),
        ("x@1.service", "enabled"),
        ("x@2.service", "masked"),
    ];
    assert_eq!(of(&should, &is), [""; 0], "the template follows from its instances");
    let is = [("x@.service", "masked"), ("x@2.service", "enabled")];
    assert_eq!(
        of(&should, &is),
        [
            "unit x@.service: state=disabled > state=masked",
            "unit x@1.service: state=enabled > -",
            "unit x@2.service: state=masked > state=enabled",
        ]
    );
}

/// thias/puppet-sysctl#73: the kernel separates by tabs what people separate by spaces.
#[test]
fn puppet_sysctl_73_tabs_and_spaces_are_the_same() {
    let with = |value: &str| {
        let value = value.to_owned();
        changed(|node| {
            node.sysctls_running
                .insert("kernel.printk".to_owned(), Ok(Some(value.clone())));
            let persisted = node.sysctls_persisted.as_mut().unwrap();
            persisted.insert("kernel.printk".to_owned(), value);
        })
    };
    for same in ["4 4 1 7", "4\t4\t1\t7\n", "  4  4\t 1 7 "] {
        assert_eq!(with(same), [""; 0], "{same:?}");
    }
    for other in ["4 4 17", "4417", "4 4 1", "4 4 1 7 0"] {
        assert_eq!(with(other).len(), 2, "{other:?}");
    }
}

/// thias/puppet-sysctl PR#72: some keys are written to and hold no value, others are another one with each read. Neither
/// is drift, nor something that nobody could look at; what the files say of them is compared.
#[test]
fn puppet_sysctl_72_keys_without_a_setting_are_not_compared() {
    let (flush, count) = ("net.ipv4.route.flush".to_owned(), "fs.file-nr".to_owned());
    let mut expected = expected();
    expected.sysctls = [(flush.clone(), "1".to_owned()), (count.clone(), "1 0 9".to_owned())].into();
    let mut observed = clean();
    observed.sysctls_running = [
        (flush.clone(), Err(Observation::Unsupported)),
        (count.clone(), Ok(Some("2\t0\t9".to_owned()))),
    ]
    .into();
    observed.sysctls_persisted = Ok([(flush.clone(), "1".to_owned()), (count, "1 0 9".to_owned())].into());
    let findings = compare_facts(&expected, &observed);
    assert_eq!(lines(&findings), [""; 0]);
    assert!(!findings.facts_by_kind.contains_key(&FindingKind::SysctlRunning));
    observed.sysctls_running.insert(flush.clone(), Err(Observation::Denied));
    observed.sysctls_persisted.as_mut().unwrap().remove(&flush);
    assert_eq!(
        lines(&compare_facts(&expected, &observed)),
        [
            "sysctl_persisted net.ipv4.route.flush: value=1 > -",
            "sysctl_running net.ipv4.route.flush? denied"
        ]
    );
}

/// ryran/xsos#96: a key that is not there, one that is empty and one that cannot be read are three things.
#[test]
fn xsos_96_missing_is_not_empty() {
    let found = changed(|node| {
        node.sysctls_running
            .insert("net.core.somaxconn".to_owned(), Ok(Some("128".to_owned())));
        node.sysctls_running.insert("kernel.modprobe".to_owned(), Ok(None));
        node.sysctls_running
            .insert("kernel.printk".to_owned(), Err(Observation::Denied));
        node.sysctls_persisted = Ok(pairs(&[("kernel.printk", ""), ("net.core.somaxconn", "8192")]));
    });
    assert_eq!(
        found,
        [
            "sysctl_running kernel.modprobe: value= > -",
            "sysctl_running net.core.somaxconn: value=8192 > value=128",
            "sysctl_persisted kernel.modprobe: value= > -",
            "sysctl_persisted kernel.printk: value=4 4 1 7 > value=",
            "sysctl_running kernel.printk? denied",
        ]
    );
}

#[test]
fn the_command_line_is_compared_by_argument() {
    let found = changed(|node| {
        node.command_line =
            Ok("root=/dev/sda1 console=ttyS0,115200 console=tty0 iommu=pt init=/bin/sh quiet".to_owned());
        node.kernel_release = Ok("6.1.0-38-amd64".to_owned());
    });
    assert_eq!(
        found,
        [
            "kernel_command_line console: arguments=console=tty0 console=ttyS0,115200 console=ttyS1,115200 > \
             arguments=console=ttyS0,115200 console=tty0",
            "kernel_command_line init: - > arguments=init=/bin/sh",
            "kernel_command_line quiet: - > arguments=quiet",
            "kernel_command_line ro: arguments=ro > -",
            "kernel_release release: release=6.1.0-37-amd64 > release=6.1.0-38-amd64",
        ]
    );
    assert_eq!(command_line_arguments(" a=\"b c\"  d\n"), ["a=\"b c\"", "d"]);
}

#[test]
fn modules_must_or_must_not_be_there() {
    let found = changed(|node| {
        node.modules = Ok(BTreeMap::from([("rds".to_owned(), ModuleState::Loaded)]));
    });
    assert_eq!(
        found,
        [
            "module ext4: state=loaded > -",
            "module nvme_core: state=loaded > -",
            "module rds: - > state=loaded"
        ]
    );
}

#[test]
fn accounts_tell_only_what_differs() {
    let found = changed(|node| {
        node.users = Ok(vec![user("root", 0, "/bin/sh"), user("evil", 0, "/bin/sh\x1b[2K")]);
        node.groups = Ok(vec![group("sudo", &["adam", "evil", "zoe"]), group("docker", &[])]);
    });
    assert_eq!(
        found,
        [
            "user evil: - > gid=0 home=/home/evil shell=/bin/sh\\x1b[2K uid=0",
            "user ops: gid=1000 home=/home/ops shell=/bin/bash uid=1000 > -",
            "user root: shell=/bin/bash > shell=/bin/sh",
            "group docker: - > gid=27 members=",
            "group sudo: members=adam,zoe > members=adam,evil,zoe",
        ]
    );
}

#[test]
fn what_could_not_be_read_is_unknown_and_what_nobody_asked_for_is_nothing() {
    let broken = ObservedFacts {
        packages: Err(Observation::Denied),
        units: Err(Observation::TimedOut),
        sysctls_running: BTreeMap::new(),
        sysctls_persisted: Err(Observation::Unstable),
        command_line: Err(Observation::Denied),
        kernel_release: Err(Observation::Denied),
        modules: Err(Observation::Denied),
        users: Err(Observation::Denied),
        groups: Err(Observation::Denied),
        hardening: Err(Observation::Denied),
    };
    let findings = compare_facts(&expected(), &broken);
    assert_eq!(findings.differences, []);
    assert!(findings.facts_by_kind.is_empty());
    assert_eq!(findings.unknown.len(), 11);
    assert!(lines(&findings).contains(&"unit *? timed_out".to_owned()));
    let nothing = compare_facts(&ExpectedFacts::default(), &broken);
    assert_eq!(nothing, FactFindings::default());
}

#[test]
fn rules_of_hardening_are_compared_where_the_image_carries_a_profile() {
    let mut expected = expected();
    let mut observed = clean();
    let problem = |place: &str, expected: &str, found: &str| RuleProblem {
        place: place.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    };
    let problems = vec![
        problem("/proc/net/tcp", "no listener beyond 22", "TCP port 111 listens"),
        problem("/proc/net/tcp", "none on 23", "TCP port 23 listens"),
    ];
    observed.hardening = Ok(ObservedRules {
        looked_at: 80,
        failed: [("NET-13".to_owned(), problems)].into(),
        unknown: [("KRN-16".to_owned(), Observation::Denied)].into(),
    });
    assert_eq!(compare_facts(&expected, &observed).differences, [], "nobody asked");
    expected.hardening_profile = Some(manifest::Digest::of(b"profile"));
    let findings = compare_facts(&expected, &observed);
    assert_eq!(findings.facts_by_kind[&FindingKind::Hardening], 80);
    assert_eq!(
        lines(&findings),
        [
            "hardening NET-13: /proc/net/tcp=no listener beyond 22; none on 23 > \
             /proc/net/tcp=TCP port 111 listens; TCP port 23 listens",
            "hardening KRN-16? denied"
        ]
    );
    observed.hardening = Err(Observation::TimedOut);
    assert_eq!(lines(&compare_facts(&expected, &observed)), ["hardening *? timed_out"]);
}
