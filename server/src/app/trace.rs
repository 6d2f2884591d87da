//! The boot events that say how far a machine came: how they are written, and how they are read back.
//!
//! Events are text for people. Those that the way of a boot is told from are written and read here, side by side, so that
//! the one cannot change without the other.

use std::net::Ipv4Addr;
use std::time::Duration;

use lifecycle::why::{DhcpSight, Scripted, Seen, Situation, Told, Why, why};
use netboot::dhcp::MessageType;
use netboot::tftp::FileName;
use protocol::NodeId;
use serde::Serialize;
use store::BootEvent;
use time::OffsetDateTime;

use super::agents::REFUSED;
use super::{App, AppError};
use crate::boot_plane::is_optional;
use crate::config::DhcpMode;
use crate::http::boot::admission::Standing;

/// What is going on with a machine, and what to try.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct NodeWhy {
    /// Whether something seems wrong; also `false` while a step is still in its time.
    pub is_stuck: bool,
    /// What was seen last.
    pub reached: String,
    /// When that was; none: nothing was ever seen.
    #[serde(with = "time::serde::rfc3339::option")]
    pub reached_at: Option<OffsetDateTime>,
    /// What was sent or recorded then, as the event says it.
    pub detail: Option<String>,
    /// What was expected next; empty when nothing is.
    pub expected: String,
    /// What is going on, in a sentence.
    pub sentence: String,
    /// Likely causes and what to try, likeliest first.
    pub advice: Vec<String>,
}

/// Why a node does not boot, or how far it came.
///
/// # Errors
/// The database does not answer.
pub async fn node_why(app: &App, node: NodeId) -> Result<NodeWhy, AppError> {
    let record = app.store.node_get(node).await?;
    let events = app.store.event_list(node, 0).await?;
    let now = OffsetDateTime::now_utc();
    let ago = |at: OffsetDateTime| Duration::try_from(now - at).unwrap_or_default();
    let last = last_step(&events);
    // A stage may take long; what its deployer tells meanwhile is no event.
    let progress_at = match &last {
        Some((_, Seen::Stage(_))) => app
            .store
            .deployment_find_open(node)
            .await?
            .and_then(|open| open.progress_at),
        _ => None,
    };
    let last_at = |event: &BootEvent| progress_at.map_or(event.at, |at| at.max(event.at));
    let waits = waiting_download(app, &record.macs);
    // Where DHCP is answered somewhere, a machine of which nothing was seen may be there.
    let boot = app.config.boot.as_ref();
    let is_unseen = boot.is_some_and(|boot| boot.subnets.iter().all(|subnet| subnet.dhcp == DhcpMode::Off));
    let dhcp = match is_unseen {
        true => DhcpSight::Unseen,
        false => DhcpSight::Seen,
    };
    let answer = why(&Situation {
        dhcp,
        state: record.state,
        state_reason: &record.state_reason,
        last: last.as_ref().map(|(event, seen)| (seen, ago(last_at(event)))),
        download_waits: waits.as_deref(),
        agent_heard: record.agent.as_ref().map(|agent| ago(agent.heartbeat_at)),
    });
    let Why {
        is_stuck,
        reached,
        expected,
        mut sentence,
        mut advice,
    } = answer;
    // Beside how far it came: what it was installed from, and what its agent says of that.
    for problem in [record.image_problem.as_deref(), refusal(&events)]
        .into_iter()
        .flatten()
    {
        sentence = format!("{sentence}; {problem}");
    }
    if record.image_problem.is_some() {
        advice.push("install it again from another image: plumbline node deploy NODE --image IMAGE".to_owned());
    }
    let event = last.map(|(event, _)| event);
    Ok(NodeWhy {
        is_stuck,
        reached,
        reached_at: event.map(|event| event.at),
        detail: event.map(|event| event.detail.clone()),
        expected,
        sentence,
        advice,
    })
}

/// Why the node's agent does not take its baseline, as it said; none when it has looked at the node since.
fn refusal(events: &[BootEvent]) -> Option<&str> {
    let newest = events
        .iter()
        .rev()
        .find(|event| event.kind == REFUSED || event.kind == "scan" || event.kind == "installed")?;
    (newest.kind == REFUSED).then_some(newest.detail.as_str())
}

/// How a download of a machine waits now, in words. Of a machine that another server serves, that one knows.
fn waiting_download(app: &App, macs: &[String]) -> Option<String> {
    let standing = |mac: &String| {
        let address = app.bodies.machines().address_of(mac.parse().ok()?)?;
        app.bodies.standing(address)
    };
    macs.iter()
        .find_map(standing)
        .map(|standing| download_detail(&standing))
}

/// The detail of a `download_waits` event.
pub fn download_detail(standing: &Standing) -> String {
    let Standing {
        in_use,
        places_max,
        before,
        own,
    } = standing;
    if in_use < places_max {
        return format!("waits for a free download: {own} of its own are in use, which is one machine's share");
    }
    format!("waits for a free download: {in_use} of {places_max} in use, {before} before it")
}

/// The detail of a `dhcp` event.
pub fn dhcp_detail(asked: MessageType, answered: MessageType, address: Ipv4Addr, stage: &str) -> String {
    let mut detail = format!("{} answered with {}", asked.name(), answered.name());
    if !address.is_unspecified() {
        detail.push_str(&format!(", address {address}"));
    }
    detail + ", " + stage
}

/// What of a `script` event says that the machine boots its disk, and that it is refused.
pub const SCRIPT_LOCAL: &str = "boot the local disk: ";
/// See [`SCRIPT_LOCAL`].
pub const SCRIPT_REFUSED: &str = "refused: ";
/// See [`SCRIPT_LOCAL`]: a person holds it.
pub const SCRIPT_HELD: &str = "held: ";
/// See [`SCRIPT_LOCAL`]: the deployer does not run on the machine. The architecture follows.
pub const SCRIPT_NO_DEPLOYER: &str = "no deployer for ";
/// What of a `tftp` event says that the whole file was confirmed.
const TFTP_COMPLETE: &str = " complete: ";
/// What of a `tftp` event says that there is no such name.
pub const TFTP_MISSING: &str = ": no such file";

/// The newest step. An address alone is one only for an operating system: the deployer asks for one too, and again and
/// again while it waits.
fn last_step(events: &[BootEvent]) -> Option<(&BootEvent, Seen)> {
    let mut steps = events.iter().rev().filter_map(|event| Some((event, seen(event)?)));
    let newest = steps.next()?;
    let is_address = |seen: &Seen| matches!(seen, Seen::Offered(Told::Address) | Seen::Confirmed(Told::Address));
    if !is_address(&newest.1) {
        return Some(newest);
    }
    let before = steps.find(|(_, seen)| !is_address(seen));
    let is_of_deployer = |seen: &Seen| {
        matches!(
            seen,
            Seen::Kernel
                | Seen::Initramfs
                | Seen::Claimed
                | Seen::ClaimRefused(_)
                | Seen::ForeignLease(_)
                | Seen::Inventoried
                | Seen::Stage(_)
                | Seen::InstallationFailed(_)
        )
    };
    Some(before.filter(|(_, seen)| is_of_deployer(seen)).unwrap_or(newest))
}

/// The step that an event stands for; none for those that are none.
fn seen(event: &BootEvent) -> Option<Seen> {
    let detail = event.detail.as_str();
    Some(match event.kind.as_str() {
        "dhcp" => {
            let told = match detail.rsplit_once(", ")?.1 {
                "address" => Told::Address,
                "loader" => Told::Loader,
                "http_loader" => Told::HttpLoader,
                "script" => Told::Script,
                _ => return None,
            };
            match detail.contains("answered with offer") {
                true => Seen::Offered(told),
                false => Seen::Confirmed(told),
            }
        }
        "dhcp_other_server" => Seen::OtherServer(detail.to_owned()),
        "dhcp_ignored" => Seen::Ignored(detail.to_owned()),
        "tftp" => tftp(detail)?,
        "script" => {
            let what = detail.split_once(": ").map_or(detail, |(_, what)| what);
            if let Some(rest) = what.strip_prefix(SCRIPT_NO_DEPLOYER) {
                let architecture = rest.split(',').next().unwrap_or_default();
                return Some(Seen::NoDeployer(architecture.to_owned()));
            }
            Seen::Script(match what {
                what if what.starts_with(SCRIPT_LOCAL) => Scripted::Local,
                what if what.starts_with(SCRIPT_REFUSED) => Scripted::Refused,
                what if what.starts_with(SCRIPT_HELD) => Scripted::Held,
                _ => Scripted::Deployer,
            })
        }
        "script_refused" => Seen::Script(Scripted::Refused),
        "kernel" => Seen::Kernel,
        "initramfs" => Seen::Initramfs,
        "claimed" => Seen::Claimed,
        "foreign_lease" => Seen::ForeignLease(detail.to_owned()),
        "claim_refused" | "token_misused" => Seen::ClaimRefused(detail.to_owned()),
        "inventory" => Seen::Inventoried,
        "stage" => Seen::Stage(detail.to_owned()),
        "installed" => Seen::Installed,
        "deployment_failed" => Seen::InstallationFailed(detail.to_owned()),
        "agent_up" => Seen::AgentUp,
        "scan" => Seen::Scanned,
        _ => return None,
    })
}

/// A transfer. Loaders ask for much that there need not be: lists of modules, revocations, scripts of their own; only a
/// loader that is missing is a reason.
fn tftp(detail: &str) -> Option<Seen> {
    if let Some((name, _)) = detail.split_once(TFTP_COMPLETE) {
        return Some(Seen::LoaderFetched(name.to_owned()));
    }
    if let Some((name, _)) = detail.split_once(TFTP_MISSING) {
        let is_optional = FileName::parse(name.as_bytes()).is_ok_and(|name| is_optional(&name));
        return (!is_optional).then(|| Seen::LoaderFailed(detail.to_owned()));
    }
    Some(Seen::LoaderFailed(detail.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, detail: &str) -> BootEvent {
        BootEvent {
            id: 1,
            node_id: None,
            mac: None,
            at: OffsetDateTime::UNIX_EPOCH,
            kind: kind.to_owned(),
            detail: detail.to_owned(),
        }
    }

    fn read(kind: &str, detail: &str) -> Option<Seen> {
        seen(&event(kind, detail))
    }

    #[test]
    fn a_deployer_that_renews_its_address_still_waits() {
        let renewal = event("dhcp", "request answered with ack, address 10.77.0.100, address");
        let step = |before: BootEvent| last_step(&[before, renewal.clone(), renewal.clone()]).unwrap().1;
        assert_eq!(step(event("inventory", "2 threads")), Seen::Inventoried);
        assert_eq!(
            step(event("stage", "write: writing files")),
            Seen::Stage("write: writing files".to_owned())
        );
        let started = event("script", &format!("to 10.77.0.100: {SCRIPT_LOCAL}nothing to do"));
        assert_eq!(step(started), Seen::Confirmed(Told::Address), "an operating system");
        assert_eq!(
            last_step(std::slice::from_ref(&renewal)).unwrap().1,
            Seen::Confirmed(Told::Address)
        );
    }

    #[test]
    fn a_download_that_waits_says_for_what() {
        let standing = |in_use, own| Standing {
            in_use,
            places_max: 256,
            before: 31,
            own,
        };
        let detail = download_detail(&standing(256, 0));
        assert_eq!(detail, "waits for a free download: 256 of 256 in use, 31 before it");
        assert!(download_detail(&standing(255, 8)).contains("8 of its own"));
        assert_eq!(read("download_waits", &detail), None, "no step: it may be over");
    }

    #[test]
    fn a_dhcp_event_reads_back_as_what_was_told() {
        let told = [
            ("address", Told::Address),
            ("loader", Told::Loader),
            ("http_loader", Told::HttpLoader),
            ("script", Told::Script),
        ];
        let address = Ipv4Addr::new(10, 77, 0, 100);
        for (stage, told) in told {
            let offer = dhcp_detail(MessageType::Discover, MessageType::Offer, address, stage);
            assert_eq!(read("dhcp", &offer), Some(Seen::Offered(told)), "{offer}");
            let ack = dhcp_detail(MessageType::Request, MessageType::Ack, Ipv4Addr::UNSPECIFIED, stage);
            assert_eq!(read("dhcp", &ack), Some(Seen::Confirmed(told)), "{ack}");
        }
    }

    #[test]
    fn scripts_and_transfers_read_back() {
        let script = |what: &str| read("script", &format!("to 10.77.0.100: {what}"));
        assert_eq!(
            script(&format!("{SCRIPT_LOCAL}nothing to do")),
            Some(Seen::Script(Scripted::Local))
        );
        assert_eq!(
            script(&format!("{SCRIPT_REFUSED}a token was misused")),
            Some(Seen::Script(Scripted::Refused))
        );
        assert_eq!(
            script(&format!("{SCRIPT_HELD}cables (admin)")),
            Some(Seen::Script(Scripted::Held))
        );
        assert_eq!(
            script(&format!("{SCRIPT_NO_DEPLOYER}arm64, only for amd64")),
            Some(Seen::NoDeployer("arm64".to_owned()))
        );
        assert_eq!(
            script("node1: taking inventory"),
            Some(Seen::Script(Scripted::Deployer))
        );
        assert_eq!(
            read("tftp", "snponly.efi complete: 284672 bytes in 92 ms to 10.77.0.100"),
            Some(Seen::LoaderFetched("snponly.efi".to_owned()))
        );
        assert!(matches!(
            read("tftp", "snponly.efi silent: 512 bytes in 9000 ms to 10.77.0.100"),
            Some(Seen::LoaderFailed(_))
        ));
        let missing = |name: &str| read("tftp", &format!("{name}{TFTP_MISSING} to 10.77.0.100"));
        assert!(matches!(missing("snp.efi"), Some(Seen::LoaderFailed(_))));
        for name in ["grub/x86_64-efi/command.lst", "revocations.efi", "autoexec.ipxe"] {
            assert_eq!(missing(name), None, "{name}");
        }
        assert!(matches!(
            read("foreign_lease", "it comes from 10.77.0.66"),
            Some(Seen::ForeignLease(_))
        ));
        assert_eq!(read("node_renamed", "x"), None);
    }
}
