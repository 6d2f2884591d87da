//! Tables and pages as people see them, from answers as the server gives them.

use jiff::tz::TimeZone;
use plumbline::cli::text::Context;
use plumbline::cli::{render, views};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::golden;

fn context(width: Option<u16>) -> Context {
    Context {
        now: "2026-01-02T12:00:00Z".parse().unwrap(),
        zone: TimeZone::UTC,
        width,
    }
}

fn view<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).unwrap()
}

fn check(name: &str, text: &str) {
    assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{text:?}");
    golden(format!("tests/cli/golden/{name}.txt"), text);
}

fn node(name: Option<&str>, state: &str, reason: &str) -> Value {
    json!({
        "id": "01940000-0000-7000-8000-000000000001",
        "name": name,
        "state": state,
        "state_reason": reason,
        "state_since": "2026-01-02T11:57:00Z",
        "macs": ["52:54:00:aa:00:01", "52:54:00:aa:00:02"],
        "inventory": null,
        "machine_id": "0123456789abcdef0123456789abcdef",
        "agent": null,
        "group": "gpu",
        "rack": "r1",
        "hold": null,
        "findings": 0,
        "scanned_at": null,
        "drift": "unknown",
        "drift_reason": "no complete scan has arrived",
        "overdue": false,
    })
}

fn deployed() -> Value {
    let mut value = node(Some("gpu-01"), "deployed", "first full scan: no drift");
    value["agent"] = json!({
        "heartbeat_at": "2026-01-02T11:59:48Z",
        "boot_id": "11111111-2222-4333-8444-555555555555",
        "agent_version": "0.1.0",
        "rss_max_bytes": 23_456_789,
        "clock_skew_ms": -3,
    });
    value["address"] = json!("10.77.0.20");
    value["ssh_host_keys"] = json!(["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"]);
    value["scanned_at"] = json!("2026-01-02T11:58:00Z");
    value["findings"] = json!(2);
    value["drift"] = json!("drift");
    value["drift_reason"] = json!("2 differences");
    value["inventory"] = json!({
        "cpu": { "model": "AMD EPYC 9654", "sockets": 2, "cores": 192, "threads": 384 },
        "memory_bytes": 1_622_722_977_792_u64,
        "disks": [
            { "name": "nvme0n1", "size_bytes": 3_840_755_982_336_u64, "sector_bytes": 512, "model": "MZQL23T8",
              "serial": "S64HNE0R", "wwn": "eui.3634", "rotational": false, "removable": false },
            { "name": "sda", "size_bytes": 16_000_000_000_u64, "sector_bytes": 512, "model": null,
              "serial": null, "wwn": null, "rotational": true, "removable": true },
        ],
        "nics": [
            { "name": "eno1", "mac": "52:54:00:aa:00:01", "driver": "mlx5_core", "pci_address": "0000:3b:00.0",
              "speed_mbps": 100_000, "link": true, "boot": true },
            { "name": "eno2", "mac": "52:54:00:aa:00:02", "driver": null, "pci_address": null,
              "speed_mbps": null, "link": false, "boot": false },
        ],
        "pci": [],
        "dmi": { "uuid": null, "serial": "ABC123", "asset_tag": null, "manufacturer": "Example",
                 "product": "GPU Server", "bios_version": "1.2", "bios_date": null },
        "uefi": true,
        "problems": ["sdb: I/O error"],
    });
    value
}

fn many() -> Vec<views::Node> {
    let mut overdue = node(Some("gpu-02"), "deploying", "deployment requested");
    overdue["overdue"] = json!(true);
    view(&json!([
        deployed(),
        overdue,
        node(None, "waiting_approval", "inventoried; waiting for approval"),
        node(Some("evil"), "failed", "write: \u{1b}[2J\u{202e}disk\nfull"),
    ]))
}

#[test]
fn nodes_in_a_wide_terminal_a_narrow_one_and_none() {
    check("nodes", &render::nodes(&many(), &context(None)));
    check("nodes_80", &render::nodes(&many(), &context(Some(80))));
    let narrow = render::nodes(&many(), &context(Some(60)));
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    check("nodes_none", &render::nodes(&[], &context(None)));
}

#[test]
fn burn_ins_with_what_they_found() {
    let result = |kind: &str, outcome: &str, detail: &str, figures: Value| {
        json!({
            "kind": kind, "outcome": outcome, "detail": detail, "figures": figures, "ports": [], "secs": 61,
        })
    };
    let tests = json!([
        { "kind": "links", "limit_secs": 60 }, { "kind": "memory", "limit_secs": 600 },
        { "kind": "cpu", "limit_secs": 300 },
    ]);
    let ended = json!({
        "ordered_by": "the site", "reason": "every new machine is burned in", "tests": tests,
        "started_at": "2026-01-02T11:00:00Z", "ended_at": "2026-01-02T11:10:00Z", "progress": "memory: pass 2",
        "problem": "the machine restarted during memory: pass 2",
        "results": [result("links", "failed", "7 of 8 InfiniBand ports have a link", json!([
            { "name": "slowest", "value": 12.345, "unit": "Mb/s" },
        ]))],
        "standing": "waived", "standing_reason": "admin: the cable is on its way",
    });
    let runs = json!({
        "ordered_by": "admin", "reason": "new DIMM", "tests": tests, "started_at": "2026-01-02T11:58:00Z",
        "ended_at": null, "progress": "memory: pass 1, 96 MB written and read", "problem": null,
        "results": [result("links", "passed", "8 of 8 ports", json!([]))],
        "standing": "running", "standing_reason": "memory: pass 1",
    });
    let listed: Vec<views::BurnIn> = vec![view(&runs), view(&ended)];
    check("burn_ins", &render::burn_ins(&listed, &context(None)));
    check("burn_ins_none", &render::burn_ins(&[], &context(None)));
}

#[test]
fn one_node_in_full() {
    check("node", &render::node(&view(&deployed()), &context(None)));
    let unseen = node(None, "listed", "added to the rack plan");
    check("node_unseen", &render::node(&view(&unseen), &context(Some(80))));
}

#[test]
fn events_read_like_a_log() {
    let events: Vec<views::Event> = view(&json!([
        { "id": 1, "at": "2026-01-02T11:57:00Z", "kind": "dhcp_offer", "detail": "10.77.0.20 to UEFI" },
        { "id": 2, "at": "2026-01-02T11:57:03Z", "kind": "script", "detail": "deployer\u{7}\r\nforged line" },
        { "id": 3, "at": "2026-01-02T11:57:04Z", "kind": "claimed", "detail": "" },
    ]));
    check("events", &render::events(&events, &context(Some(80))));
}

fn deployment_of(id: &str) -> Value {
    json!({
        "id": id,
        "image": "ab".repeat(32),
        "state": "running",
        "reason": "a deployer works on it",
        "attempt": 1,
        "attempts_max": 3,
        "progress": { "stage": "write", "detail": "/usr/lib", "bytes_done": 450, "bytes_total": 1_000,
                      "files_done": 1, "files_total": 3 },
        "requested_by": "admin",
        "created_at": "2026-01-02T11:00:00Z",
    })
}

#[test]
fn deployments() {
    let deployment = deployment_of("01940000-0000-7000-8000-000000000002");
    let mut waiting = deployment.clone();
    waiting["state"] = json!("waiting");
    waiting["progress"] = Value::Null;
    let all: Vec<views::Deployment> = view(&json!([deployment, waiting]));
    check("deployments", &render::deployments(&all, &context(None)));
    check("deployment", &render::deployment(&all[0], &context(None)));
    let mut done = deployment_of(&all[0].id);
    done["outcome"] = json!({
        "outcome": "installed", "files": 10_053, "bytes": 369_000_000, "requests": 12, "duration_secs": 31,
        "work": { "mode": "in_place", "reason": "the disk has this node's root filesystem", "bytes_fetched": 3_500_000,
                  "bytes_kept": 362_000_000, "files_kept": 9_900, "files_written": 160, "files_removed": 41 },
    });
    check(
        "deployment_in_full",
        &render::deployment_in_full(&view(&done), &context(None)),
    );
}

#[test]
fn discovery_and_sightings() {
    let windows: Vec<views::Window> = view(&json!([{
        "subnet": "10.77.0.0/24", "expires_at": "2026-01-02T12:30:00Z", "nodes_max": 64, "nodes_used": 3,
        "armed_by": "admin",
    }]));
    check("windows", &render::windows(&windows, &context(None)));
    let sightings: Vec<views::Sighting> = view(&json!([{
        "mac": "52:54:00:aa:00:09", "first_at": "2025-12-30T12:00:00Z", "last_at": "2026-01-02T11:59:30Z",
        "count": 41, "vendor_class": "PXEClient:Arch:00007", "architecture": 7, "relay": null,
    }]));
    check("sightings", &render::sightings(&sightings, &context(None)));
}

#[test]
fn images_and_their_check() {
    let image = json!({
        "digest": "cd".repeat(32), "kind": "os", "name": "debian-12-lab", "version": "20260101T000000Z",
        "description": "Debian GNU/Linux 12 (bookworm)", "architecture": "amd64", "files": 10_053,
        "content_bytes": 369_000_000, "stored_bytes": 124_000_000,
        "files_by_class": { "pinned": 9_990, "seeded": 40, "volatile": 23 },
        "registered_at": "2026-01-01T00:10:00Z",
    });
    let all: Vec<views::Image> = view(&json!([image]));
    check("images", &render::images(&all, &context(None)));
    check("image", &render::image(&all[0], &context(None)));
    let sound = json!({
        "image": image, "ok": true, "signed_by": "image", "signature_problem": null, "packs": 2,
        "pack_bytes": 124_000_000, "packs_damaged": [], "blobs": 8_000, "damaged": [], "damaged_count": 0,
    });
    check("image_sound", &render::image_check(&view(&sound), &context(None)));
    let mut damaged = sound;
    damaged["ok"] = json!(false);
    damaged["packs_damaged"] = json!(["ef".repeat(32)]);
    damaged["damaged"] = json!(["/usr/bin/true", "/usr/bin/\u{1b}]0;x"]);
    damaged["damaged_count"] = json!(7);
    check("image_damaged", &render::image_check(&view(&damaged), &context(None)));
}

#[test]
fn drift_of_the_fleet_and_of_a_node() {
    let group = json!({
        "group": "0123456789abcdef".repeat(4), "kind": "file", "key": "/etc/motd", "severity": "high", "nodes": 412,
        "open": 400, "acknowledged": 2, "waived": 10, "accepted": 0,
        "variants": 2, "first_at": "2025-12-31T12:00:00Z",
    });
    let mut allowed = group.clone();
    allowed["open"] = json!(0);
    allowed["acknowledged"] = json!(0);
    allowed["waived"] = json!(412);
    let groups: Vec<views::Group> = view(&json!([group, allowed]));
    check("drift_groups", &render::groups(&groups, false, &context(None)));
    check("drift_groups_all", &render::groups(&groups, true, &context(None)));
    let variants: Vec<views::Variant> = view(&json!([
        { "variant": "aa".repeat(32), "expected": { "mode": "0644" }, "actual": { "mode": "0666", "uid": "7" },
          "nodes": ["gpu-01", "gpu-02"], "node_count": 411 },
        { "variant": "bb".repeat(32), "expected": { "mode": "0644" }, "actual": null,
          "nodes": ["gpu-03"], "node_count": 1 },
    ]));
    check(
        "drift_variants",
        &render::variants(&groups[0], &variants, &context(None)),
    );

    let mut node = json!({
        "node": "01940000-0000-7000-8000-000000000001", "name": "gpu-01", "verdict": "drift",
        "reason": "2 differences; 3 places could not be looked at",
        "report": {
            "received_at": "2026-01-02T11:58:00Z", "boot_id": "11111111-2222-4333-8444-555555555555",
            "complete": true,
            "scan": {
                "started_unix_ms": 0, "duration_ms": 4_321, "complete": true,
                "roots": [{ "mount": "/", "entries": 20_000, "complete": true }],
                "entries_by_class": { "pinned": 20_000 }, "facts_by_kind": { "package": 310, "unit": 90 },
                "hashed_bytes": 369_000_000, "not_looked_at_count": 3, "difference_count": 2,
            },
            "not_looked_at": [
                { "kind": "file", "key": "/etc/shadow", "observation": { "observation": "denied" } },
                { "kind": "file", "key": "/mnt", "observation": { "observation": "not_scanned", "detail": "mount hangs" } },
            ],
        },
        "findings": [
            { "group": "00", "kind": "file", "key": "/etc/motd", "severity": "high", "standing": "open",
              "expected": { "mode": "0644" }, "actual": { "mode": "0666" }, "opened_at": "2026-01-02T09:00:00Z" },
            { "group": "01", "kind": "file", "key": "/usr/bin/x\u{9b}", "severity": "critical", "standing": "waived",
              "expected": null, "actual": { "type": "file", "size": "12" }, "opened_at": "2026-01-02T11:00:00Z" },
        ],
    });
    check("drift_node", &render::node_drift(&view(&node), &context(None)));
    node["verdict"] = json!("unknown");
    node["reason"] = json!("no complete scan has arrived");
    node["report"] = Value::Null;
    node["findings"] = json!([]);
    check("drift_node_unknown", &render::node_drift(&view(&node), &context(None)));
}

#[test]
fn remediation_planned_and_carried_out() {
    let step = |verb: &str, name: &str, object: &str, group: &str| json!({ "group": group.repeat(32), "variant": "ab".repeat(32), "verb": { "verb": verb, name: object } });
    let steps = json!([
        step("restore_file", "path", "/etc/motd", "01"),
        step("set_sysctl", "key", "kernel.panic", "02"),
        step("set_unit", "unit", "ssh.service", "03"),
    ]);
    let held = json!({
        "group": "cd".repeat(32), "kind": "file", "key": "/etc/chrony/chrony.conf", "node_group": "gpu",
        "why": "baseline_suspect", "nodes": 30,
        "reason": "it stands on 30 of 40 nodes of the group: the baseline is suspect, release it after looking",
    });
    let mut plan = json!({
        "nodes": [{ "node_id": "01940000-0000-7000-8000-000000000001", "node": "gpu-01", "group": "gpu", "rack": "r1",
                    "steps": steps }],
        "findings": 3, "held": [held], "held_findings": 30, "allowed": 4, "at_once": { "gpu": 1, "login": 1 },
        "unknown": ["gpu-07"],
    });
    check("remediation_plan", &render::plan(&view(&plan), &context(None)));
    plan["nodes"] = json!([]);
    plan["findings"] = json!(0);
    check("remediation_left", &render::left(&view(&plan), &context(None)));
    plan["held"] = json!([]);
    plan["held_findings"] = json!(0);
    plan["unknown"] = json!([]);
    check("remediation_nothing", &render::plan(&view(&plan), &context(None)));

    let run = json!({
        "id": "01940000-0000-7000-8000-0000000000aa", "state": "finished", "reason": "1 nodes: 1 left",
        "requested_by": "cron", "nodes": { "left": 1 }, "left": 1, "created_at": "2026-01-02T11:50:00Z",
        "jobs": [{
            "node": "gpu-01", "state": "left", "reason": "a fresh scan still shows 1 of its findings", "steps": steps,
            "outcome": { "outcome": "ran", "steps": [
                { "group": "01".repeat(32), "result": "done", "detail": "1,204 bytes, mode 0644" },
                { "group": "02".repeat(32), "result": "refused", "reason": "it differs in another way now" },
                { "group": "03".repeat(32), "result": "failed", "reason": "systemctl enable: timed out" },
            ] },
        }],
    });
    let runs: Vec<views::Run> = view(&json!([run]));
    check("remediation_runs", &render::runs(&runs, &context(None)));
    check("remediation_run", &render::run(&runs[0], &context(None)));
}

#[test]
fn what_is_different_between_two_images() {
    let image = |version: &str| {
        json!({
            "digest": "cd".repeat(32), "kind": "os", "name": "debian-12-lab", "version": version,
            "description": null, "architecture": "amd64", "files": 1, "content_bytes": 1, "stored_bytes": 1,
            "files_by_class": {}, "registered_at": "2026-01-01T00:10:00Z",
        })
    };
    let path = |mode: &str, size: u64| {
        json!({
            "type": "file", "mode": mode, "uid": 0, "gid": 0, "class": "pinned", "size": size, "target": null,
        })
    };
    let diff = json!({
        "before": image("20260101T000000Z"), "now": image("20260201T000000Z"),
        "facts": [
            { "area": "kernel", "name": "release", "before": "6.1.0-1-amd64", "now": "6.1.0-2-amd64" },
            { "area": "package", "name": "bash:amd64", "before": "5.2.15-2", "now": null },
            { "area": "package", "name": "zsh:amd64", "before": null, "now": "5.9-4" },
        ],
        "paths": [
            { "path": "/bin/sh", "fields": ["link"], "before": { "type": "symlink", "mode": "0777", "uid": 0, "gid": 0,
              "class": "pinned", "size": null, "target": "bash" }, "now": { "type": "symlink", "mode": "0777", "uid": 0,
              "gid": 0, "class": "pinned", "size": null, "target": "zsh" } },
            { "path": "/etc/a", "fields": ["content", "mode"], "before": path("0644", 10), "now": path("0600", 20_000) },
            { "path": "/etc/b", "fields": [], "before": path("0644", 10), "now": null },
            { "path": "/etc/c\u{1b}]0;x", "fields": [], "before": null, "now": path("0644", 10) },
        ],
        "paths_added": 1, "paths_removed": 1, "paths_changed": 2, "bytes_new": 20_010,
    });
    let diff: views::ImageDiff = view(&diff);
    check("image_diff", &render::image_diff(&diff, &context(None), 50));
    let text = render::image_diff(&diff, &context(None), 3);
    assert!(text.contains("and 1 more: --all"), "{text}");
}

fn key(id: &str, state: &str, images: u64) -> Value {
    json!({
        "id": id, "public_key": "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3", "state": state,
        "signs_here": state == "active", "made_at": "2026-01-01T12:00:00Z", "retired_at": null, "revoked_at": null,
        "revoked": null, "images": images,
    })
}

#[test]
fn keys_and_what_their_signatures_are_worth() {
    let mut retired = key("E7620F1842B4E81F", "retired", 12);
    retired["retired_at"] = json!("2026-01-02T09:00:00Z");
    let mut revoked = key("0123456789ABCDEF", "revoked", 1);
    revoked["revoked_at"] = json!("2026-01-02T11:00:00Z");
    revoked["revoked"] = json!("on 2026-01-02, by admin: the laptop\u{1b}[2J was stolen");
    let listed: Vec<views::Key> = view(&json!([revoked, retired, key("FEDCBA9876543210", "active", 3)]));
    check("keys", &render::keys(&listed, &context(None)));
    check("key", &render::key(&view(&revoked), &context(None)));

    let rotated = json!({
        "key": key("FEDCBA9876543210", "active", 1), "before": "E7620F1842B4E81F", "resigned": ["debian-12@2"],
        "resigned_count": 1, "left": ["debian-12@1"], "left_count": 1,
    });
    check("key_rotated", &render::key_rotated(&view(&rotated), &context(None)));
    let answer = json!({
        "key": revoked, "images": ["debian-12@1"], "images_count": 1, "can_sign": false, "users_count": 203,
        "users": [{ "node": "gpu-01", "how": "runs" }, { "node": "gpu-02", "how": "waits" },
                  { "node": "gpu-03", "how": "proposed" }],
    });
    check("key_revoked", &render::key_revoked(&view(&answer), &context(None)));
    let answer = json!({
        "digest": "0".repeat(64), "image": null, "reason": "on 2026-01-02, by admin: bad", "users": [], "users_count": 0,
    });
    check("image_revoked", &render::image_revoked(&view(&answer), &context(None)));
}

#[test]
fn recipes_and_builds_with_where_they_stand() {
    let recipe = |name: &str, kind: Option<&str>, error: Option<&str>| {
        json!({
            "name": name, "kind": kind, "error": error, "extends": 1, "packages": 12, "is_locked": error.is_none(),
        })
    };
    let mistake = "recipes/gpu/image.yaml:5:1: unknown field `package`\n  |\n5 | package: [\u{1b}[2J]\n  | ^";
    let recipes: Vec<views::Recipe> = view(&json!([
        recipe("gpu", None, Some(mistake)),
        recipe("lab", Some("os"), None),
    ]));
    check("recipes", &render::recipes(&recipes, &context(None)));
    check("recipes_none", &render::recipes(&[], &context(None)));

    let build = |number: u32, state: &str, more: Value| {
        let mut build = json!({
            "id": format!("01940000-0000-7000-8000-00000000000{number}"), "recipe": "lab", "state": state,
            "requested_by": "admin", "requested_at": "2026-01-02T11:57:00Z", "stage": "", "detail": "", "count": null,
            "cancelled_by": null, "image": null, "error": null,
        });
        build.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        build
    };
    let count = |total: Option<u64>, unit: &str| json!({ "done": 12_000_000, "total": total, "unit": unit });
    let builds: Vec<views::Build> = view(&json!([
        build(7, "queued", json!({})),
        build(
            6,
            "queued",
            json!({ "detail": "somebody builds in the data folder by hand" })
        ),
        build(
            5,
            "running",
            json!({ "stage": "pack", "detail": "12 of 300 MB", "count": count(Some(300_000_000), "bytes") })
        ),
        build(
            4,
            "running",
            json!({ "stage": "packages", "detail": "x", "cancelled_by": "admin",
            "count": count(None, "packages") })
        ),
        build(3, "done", json!({ "image": "cd".repeat(32) })),
        build(
            2,
            "failed",
            json!({ "error": "mmdebstrap failed (exit status: 1); it said last:\nE: \u{1b}[31mno space" })
        ),
        build(1, "cancelled", json!({ "cancelled_by": "admin" })),
    ]));
    check("builds", &render::builds(&builds, &context(None)));
    check("builds_none", &render::builds(&[], &context(None)));
    check("build", &render::build(&builds[5], &context(None)));
    check("build_done", &render::build(&builds[4], &context(None)));
}

fn channel() -> Value {
    json!({
        "name": "debian-12-gpu/stable",
        "image": "ab".repeat(32),
        "version": "20260201T000000Z",
        "previous": "cd".repeat(32),
        "previous_version": "20260101T000000Z",
        "moved_by": "ada",
        "moved_at": "2026-01-02T09:00:00Z",
        "reason": "a week on the canaries",
        "nodes": 2,
        "behind": 1,
    })
}

#[test]
fn channels() {
    let mut first = channel();
    first["name"] = json!("debian-12-gpu/canary");
    first["previous_version"] = Value::Null;
    let list = [view(&first), view(&channel())];
    check("channels", &render::channels(&list, &context(None)));
    check("channels_none", &render::channels(&[], &context(None)));
    let mut shown = channel();
    shown["moved"] = json!(true);
    shown["followers"] = json!([
        { "name": "gpu-07\u{1b}[2J", "group": "gpu", "version": "20260101T000000Z", "behind": true },
        { "name": "gpu-01", "group": "gpu", "version": "20260201T000000Z", "behind": false },
    ]);
    check("channel", &render::channel(&view(&shown), &context(None)));
    let moves: Vec<views::ChannelMove> = vec![
        view(
            &json!({ "kind": "back", "from_version": "20260201T000000Z", "to_version": "20260101T000000Z",
                      "reason": "NICs flap", "moved_by": "ada", "moved_at": "2026-01-02T11:00:00Z" }),
        ),
        view(
            &json!({ "kind": "set", "from_version": null, "to_version": "20260101T000000Z",
                      "reason": "first", "moved_by": "ada", "moved_at": "2026-01-01T11:00:00Z" }),
        ),
    ];
    check("channel_moves", &render::channel_moves(&moves, &context(None)));
}

#[test]
fn collections() {
    let mut done = json!({
        "dry_run": true,
        "images": [
            { "name": "debian-12-gpu", "version": "20260201T000000Z", "digest": "ab".repeat(32), "removed": false,
              "reasons": ["installed on gpu-01 and 411 more", "one of the 3 newest versions"], "bytes_freed": 0 },
            { "name": "debian-12-gpu", "version": "20250101T000000Z", "digest": "cd".repeat(32), "removed": true,
              "reasons": [], "bytes_freed": 1_234_567_890 },
        ],
        "unfinished": 1,
        "unsigned": 1,
        "packs_removed": 30,
        "packs_waiting": 2,
        "repacked": [{ "pack": "ef".repeat(32), "size": 64_000_000, "new_size": 12_000_000 }],
        "damaged": ["01".repeat(32)],
        "bytes_freed": 1_300_000_000,
    });
    check("collection_dry", &render::collection(&view(&done), &context(None)));
    done["dry_run"] = json!(false);
    check("collection", &render::collection(&view(&done), &context(None)));
}
