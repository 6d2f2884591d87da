//! Bringing a profile about in a small Debian root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use hardening::{Report, RuleResult, Tree, Waiver, apply, demands, evaluate, waivers_parse};

use crate::support::{day, profiles};

const TODAY: &str = "2026-06-01";

/// What mmdebstrap leaves, as far as rules look at it, with things that stand against them.
fn debian() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/bin/sh\nsync:x:4:65534:sync:/bin:/bin/sync\n\
        munge:x:110:110::/nonexistent:/usr/sbin/nologin\nopen::1000:1000::/home/open:/bin/bash\n";
    let unit = "[Unit]\nDescription=x\n[Install]\nWantedBy=multi-user.target\n";
    let installed: String = [
        "apparmor",
        "auditd",
        "chrony",
        "nftables",
        "openssh-server",
        "systemd-coredump",
    ]
    .iter()
    .map(|name| format!("Package: {name}\nStatus: install ok installed\n\n"))
    .collect();
    for (path, content) in [
        ("etc/passwd", passwd),
        ("etc/passwd-", passwd),
        (
            "etc/group",
            "root:x:0:\ndaemon:x:1:\nshadow:x:42:\nmunge:x:110:\nnogroup:x:65534:\nopen:x:1000:\n",
        ),
        (
            "etc/shadow",
            "root::19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nopen::19000:0:99999:7:::\n",
        ),
        ("etc/gshadow", "root:*::\n"),
        (
            "etc/login.defs",
            "# comment\nUMASK\t\t022\nPASS_MAX_DAYS\t99999\nPASS_MIN_DAYS\t0\nPASS_WARN_AGE\t7\n",
        ),
        ("etc/issue", "Debian GNU/Linux 12 \\n \\l\n"),
        ("etc/sudoers", "Defaults\tenv_reset\nroot ALL=(ALL:ALL) ALL\n"),
        (
            "etc/pam.d/su",
            "auth       sufficient pam_rootok.so\n@include common-auth\n",
        ),
        (
            "etc/pam.d/common-auth",
            "auth [success=1 default=ignore] pam_unix.so nullok\n",
        ),
        (
            "etc/ssh/sshd_config",
            "X11Forwarding yes\nInclude /etc/ssh/sshd_config.d/*.conf\n",
        ),
        (
            "etc/ssh/sshd_config.d/50-cloud-init.conf",
            "PasswordAuthentication yes\n",
        ),
        ("etc/ssh/ssh_host_ed25519_key", "key"),
        ("etc/crontab", ""),
        ("etc/cron.d/e2scrub_all", ""),
        ("etc/hosts.equiv", "+\n"),
        (
            "etc/apt/sources.list",
            "deb http://deb.debian.org/debian bookworm main\n",
        ),
        ("etc/audit/auditd.conf", "max_log_file_action = ROTATE\n"),
        ("etc/audit/rules.d/audit.rules", "-D\n-b 64\n"),
        (
            "etc/modprobe.d/nvidia.conf",
            "options nvidia NVreg_DeviceFileMode=0666\ninstall dccp /sbin/modprobe -i dccp\n",
        ),
        ("etc/munge/munge.key", "key"),
        ("usr/bin/nvidia-smi", ""),
        (
            "usr/lib/sysctl.d/99-protect-links.conf",
            "fs.protected_fifos = 1\nfs.protected_hardlinks = 0\n",
        ),
        ("usr/lib/systemd/system/apparmor.service", unit),
        ("usr/lib/systemd/system/auditd.service", unit),
        ("usr/lib/systemd/system/nftables.service", unit),
        (
            "usr/lib/systemd/system/chrony.service",
            "[Unit]\n[Install]\nWantedBy=multi-user.target\nAlias=chronyd.service\n",
        ),
        ("usr/lib/systemd/system/systemd-timesyncd.service", unit),
        ("usr/lib/systemd/system/ctrl-alt-del.target", unit),
        ("usr/lib/systemd/system/apt-daily.timer", unit),
        ("var/lib/dpkg/status", &installed),
        ("boot/grub/grub.cfg", ""),
    ] {
        let place = root.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    }
    for target in [
        "multi-user.target.wants/systemd-timesyncd.service",
        "sysinit.target.wants/apt-daily.timer",
    ] {
        let link = root.path().join("etc/systemd/system").join(target);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let unit = target.rsplit('/').next().unwrap();
        symlink(format!("/usr/lib/systemd/system/{unit}"), link).unwrap();
    }
    fs::create_dir_all(root.path().join("tmp")).unwrap();
    fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    root
}

/// Owners cannot be set by anybody else; an image is built by root too.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("passed over: setting owners needs root");
    }
    is_root
}

fn look(profile: &hardening::Profile, root: &Path, waivers: &[Waiver]) -> Report {
    let asked = demands(profile, waivers, day(TODAY));
    let line: Vec<_> = asked.command_line_tokens.iter().map(String::as_str).collect();
    let tree = Tree::folder(root)
        .unwrap()
        .with_command_line(&format!("ro {}", line.join(" ")));
    evaluate(profile, &tree, waivers, day(TODAY))
}

/// Every path with what it is: content, link or folder, mode and owner.
fn snapshot(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let what = if found.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if found.is_dir() {
                pending.push(path.clone());
                "folder".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let owner = (
                std::os::unix::fs::MetadataExt::uid(&found),
                std::os::unix::fs::MetadataExt::gid(&found),
            );
            let mode = found.permissions().mode();
            all.insert(
                path.strip_prefix(root).unwrap().display().to_string(),
                format!("{mode:o} {owner:?} {what}"),
            );
        }
    }
    all
}

#[test]
fn what_files_can_bring_about_passes_and_a_second_time_nothing_changes() {
    if !is_root() {
        return;
    }
    for profile in profiles() {
        let root = debian();
        let before = look(&profile, root.path(), &[]);
        assert!(before.counts.failed > 40, "{}", before.to_text());
        let applied = apply(&profile, root.path(), &[], day(TODAY)).unwrap();
        assert!(!applied.written.is_empty());
        let report = look(&profile, root.path(), &[]);
        assert_eq!(report.failed().len(), 0, "{}", report.to_text());
        assert_eq!(report.could_not_look().len(), 0, "{}", report.to_text());
        for rule in profile.rules.iter().filter(|rule| !rule.fixes.is_empty()) {
            let result = &report.rule(rule.id.as_str()).unwrap().result;
            let is_good = match result {
                RuleResult::Passed => true,
                // Nothing in this root that it is about.
                RuleResult::NotApplicable { .. } => matches!(rule.id.as_str(), "GPU-04"),
                // AppArmor: the rest is up to the running node.
                RuleResult::NotLookedAt { why } => why.is_elsewhere(),
                _ => false,
            };
            assert!(is_good, "{} {result:?}", rule.id);
        }
        let kept = snapshot(root.path());
        let again = apply(&profile, root.path(), &[], day(TODAY)).unwrap();
        assert_eq!(again.written, [], "{}", profile.name);
        assert_eq!(snapshot(root.path()), kept);
        // Another root gets the same bytes.
        let other = debian();
        assert_eq!(apply(&profile, other.path(), &[], day(TODAY)).unwrap(), applied);
        assert_eq!(snapshot(other.path()), kept);
    }
}

#[test]
fn drop_ins_win_where_others_stand_against_them() {
    if !is_root() {
        return;
    }
    let root = debian();
    apply(&profiles()[0], root.path(), &[], day(TODAY)).unwrap();
    let text = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    // Something stood before the Include.
    assert!(text("etc/ssh/sshd_config").starts_with("Include /etc/ssh/sshd_config.d/00-plumbline-hardening.conf\nX11"));
    assert!(
        text("etc/ssh/sshd_config.d/00-plumbline-hardening.conf").contains("# SSH-02\nPasswordAuthentication no\n")
    );
    // Debian's own file sorts after ours: only what it sets otherwise is said again.
    assert!(text("etc/sysctl.d/60-plumbline-hardening.conf").contains("fs.protected_fifos = 1\n"));
    let late = text("etc/sysctl.d/zz-plumbline-hardening.conf");
    assert!(
        late.contains("fs.protected_hardlinks = 1\n") && !late.contains("protected_fifos"),
        "{late}"
    );
    assert!(
        text("etc/apt/sources.list").starts_with("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ")
    );
    // Owners and modes of files that were edited stay.
    let mode = |path: &str| root.path().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (
            mode("etc/shadow"),
            mode("etc/passwd"),
            mode("etc/sudoers.d/60-plumbline")
        ),
        (0o640, 0o644, 0o440)
    );
    assert!(text("etc/shadow").starts_with("root:*:19000:"));
    assert!(!root.path().join("etc/hosts.equiv").exists());
    let timesyncd = fs::read_link(root.path().join("etc/systemd/system/systemd-timesyncd.service")).unwrap();
    assert_eq!(timesyncd, Path::new("/dev/null"));
}

#[test]
fn a_waived_rule_is_left_alone_until_its_waiver_expires() {
    let base = profiles().remove(0);
    let text = "waivers:\n  - {rule: KRN-14, reason: r, approver: a, expires_at: 2026-06-01}\n  - {rule: MOD-09, reason: r, approver: a, expires_at: 2026-06-01}\n";
    let waivers = waivers_parse(Path::new("w.yaml"), text, &base).unwrap();
    assert!(
        demands(&base, &waivers, day("2026-06-01"))
            .command_line_tokens
            .is_empty()
    );
    let asked = demands(&base, &waivers, day("2026-06-02"));
    assert!(asked.command_line_tokens.contains("lockdown=integrity"));
    assert!(asked.packages_needed.contains("auditd") && asked.packages_unwanted.contains("telnetd"));
    if !is_root() {
        return;
    }
    for (today, is_waived) in [("2026-06-01", true), ("2026-06-02", false)] {
        let root = debian();
        let applied = apply(&base, root.path(), &waivers, day(today)).unwrap();
        let modules = fs::read_to_string(root.path().join("etc/modprobe.d/00-plumbline-hardening.conf")).unwrap();
        assert_eq!(!modules.contains("usb-storage"), is_waived);
        assert_eq!(applied.waived.len(), if is_waived { 2 } else { 0 });
    }
}

#[test]
fn nothing_is_written_outside_the_root() {
    if !is_root() {
        return;
    }
    for (link, is_error) in [
        ("etc/login.defs", false),
        ("etc/issue.net", false),
        ("etc/sysctl.d", true),
    ] {
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("target");
        if is_error {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "UMASK 022\n").unwrap();
        }
        let root = debian();
        let _ = fs::remove_file(root.path().join(link));
        symlink(&target, root.path().join(link)).unwrap();
        let before = snapshot(outside.path());
        let applied = apply(&profiles()[0], root.path(), &[], day(TODAY));
        assert_eq!(applied.is_err(), is_error, "{link} {applied:?}");
        assert_eq!(snapshot(outside.path()), before, "{link}");
    }
}
