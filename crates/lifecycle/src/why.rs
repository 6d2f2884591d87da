//! Why a machine does not boot: from what was seen of it to one sentence and what to try.
//!
//! Idea: a boot is a chain of known steps, and each step that arrives says that everything before it works. What is
//! wrong lies between the last step that was seen and the next one that was not. Each gap has a handful of causes that
//! data centres meet again and again; they are named here, likeliest first.
//!
//! Invariant: nothing is called wrong before the step that is due has had its time.

use std::time::Duration;

use crate::NodeState;

/// What a DHCP answer told the machine to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// An address and nothing else.
    Address,
    /// A loader by TFTP.
    Loader,
    /// A loader by HTTP.
    HttpLoader,
    /// Its script, by HTTP.
    Script,
}

/// What its script told the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripted {
    /// Start the deployer.
    Deployer,
    /// Boot the local disk.
    Local,
    /// Nothing: it is refused, and shown why.
    Refused,
    /// Nothing until a person lifts their order.
    Held,
}

/// One step that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A DHCP request that was not answered, and why.
    Ignored(String),
    /// It took the offer of another DHCP server, at this address.
    OtherServer(String),
    /// A DHCP offer was sent.
    Offered(Told),
    /// A DHCP request was confirmed.
    Confirmed(Told),
    /// A loader was fetched whole, by TFTP or HTTP.
    LoaderFetched(String),
    /// A loader's transfer broke off, or the name does not exist.
    LoaderFailed(String),
    /// The machine's script was fetched.
    Script(Scripted),
    /// Its loader was told that there is no deployer for this architecture.
    NoDeployer(String),
    /// The deployer's kernel was asked for.
    Kernel,
    /// The deployer's initial ramdisk was asked for.
    Initramfs,
    /// The deployer presented its token.
    Claimed,
    /// The deployer was turned down, and why.
    ClaimRefused(String),
    /// It came from an address that another DHCP server gave it, and was turned down; what was seen of that.
    ForeignLease(String),
    /// The deployer told what the machine is made of.
    Inventoried,
    /// A stage of an installation began.
    Stage(String),
    /// The installation ended well.
    Installed,
    /// The installation failed, and why.
    InstallationFailed(String),
    /// The installed system's agent came up.
    AgentUp,
    /// The installed system was scanned.
    Scanned,
}

/// Who answers the machine's DHCP requests, as far as it says what can be seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpSight {
    /// This server, alone or beside another: it sees each request.
    Seen,
    /// The site's server alone, which names this one. The first step that can be seen of a machine is its script.
    Unseen,
}

/// What is known of the machine now.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Whether DHCP is a step that can be seen.
    pub dhcp: DhcpSight,
    /// Where the node stands.
    pub state: NodeState,
    /// Why it stands there.
    pub state_reason: &'a str,
    /// The newest step, and how long ago it was; none: nothing was ever seen.
    pub last: Option<(&'a Seen, Duration)>,
    /// How a download of it waits for those of others, in words that follow its name; none: none does.
    pub download_waits: Option<&'a str>,
    /// How long ago its agent was heard; none: never.
    pub agent_heard: Option<Duration>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Whether something seems wrong; `false` also while a step is still in its time.
    pub is_stuck: bool,
    /// What was seen last, in a few words.
    pub reached: String,
    /// What was expected next, in a few words; empty when nothing is.
    pub expected: String,
    /// What is going on, in a sentence.
    pub sentence: String,
    /// Likely causes and what to try, likeliest first.
    pub advice: Vec<String>,
}

/// How long an agent may be silent before its machine counts as down.
const AGENT_SILENCE: Duration = Duration::from_secs(120);

/// A gap between two steps.
struct Gap {
    reached: &'static str,
    expected: &'static str,
    due: Duration,
    advice: &'static [&'static str],
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const NEVER: Gap = Gap {
    reached: "nothing was ever seen of this machine",
    expected: "a DHCP request from its firmware",
    due: secs(0),
    advice: &[
        "is the machine powered on, and its first boot device the network? Its screen or serial console says",
        "is the MAC the right one? `plumbline sightings` lists machines that asked and are in no record",
        "is it on the provisioning network: cable, VLAN of the switch port, and a DHCP relay that points here where there is a router between?",
        "does the switch port forward at once (portfast/edge port)? With spanning tree firmware gives up before it does",
    ],
};

const NEVER_WITHOUT_DHCP: Gap = Gap {
    reached: "nothing was ever seen of this machine, and its DHCP is the site's: dhcp = \"off\"",
    expected: "its loader's request for its script",
    due: secs(0),
    advice: &[
        "is the machine powered on, and its first boot device the network? Its screen or serial console says",
        "does the site's DHCP server know this machine, and what did it send? Its log says; what it has to send to which firmware is in docs/operations.md, DHCP mode off",
        "does it tell iPXE, once that runs, where the script is? Else iPXE loads itself again and again, or stops without a boot file",
        "69/udp and 8081/tcp may be blocked between the machine and this server; in this mode a loader's transfer is in no node's events, only in the counters of /metrics",
        "is the MAC the right one? `plumbline sightings` lists machines whose loader asked for a script and that are in no record",
        "is it on the right network: cable, VLAN of the switch port, and a port that forwards at once (portfast/edge port)?",
    ],
};

const OFFERED: Gap = Gap {
    reached: "a DHCP offer was sent",
    expected: "a DHCP request that takes it",
    due: secs(20),
    advice: &[
        "another DHCP server may have won: look for a second one on this network",
        "the offer may not reach the machine: a relay or firewall that lets 67/udp and 68/udp through one way only",
    ],
};

const TOLD_LOADER: Gap = Gap {
    reached: "the machine was told which loader to fetch by TFTP",
    expected: "its TFTP request",
    due: secs(20),
    advice: &[
        "69/udp may be blocked between the machine and this server",
        "another server may have told it another loader: in mode proxy, see that the site's DHCP server sends no boot file of its own",
        "the link may have gone down in between: LACP without fallback, or spanning tree on the switch port",
    ],
};

const TOLD_HTTP_LOADER: Gap = Gap {
    reached: "the machine was told which loader to fetch by HTTP",
    expected: "its HTTP request, and its loader's own DHCP request or script",
    due: secs(30),
    advice: &[
        "the boot listener's port (8081/tcp) may be blocked between the machine and this server",
        "some firmware refuses plain HTTP: look for \"allow HTTP connections\" in its settings",
        "with Secure Boot on, only the chain `grub` or `http` starts: plumbline node set NODE --chain grub",
    ],
};

const TOLD_SCRIPT: Gap = Gap {
    reached: "the loader runs and was told where its script is",
    expected: "its HTTP request for the script",
    due: secs(30),
    advice: &[
        "the boot listener's port (8081/tcp) may be blocked between the machine and this server",
        "the link may have gone down when the loader took the card over: LACP without fallback, or spanning tree",
    ],
};

const TOLD_ADDRESS: Gap = Gap {
    reached: "an operating system was given an address",
    expected: "its agent",
    due: secs(300),
    advice: &[
        "the system starts, but its agent is not heard: `systemctl status plumbline-agent` on the node",
        "port 8443/tcp may be blocked between the node and this server",
    ],
};

const LOADER_FETCHED: Gap = Gap {
    reached: "the loader was fetched whole",
    expected: "the loader's own DHCP request or script",
    due: secs(40),
    advice: &[
        "with Secure Boot on, firmware refuses iPXE (\"Access Denied\", \"Security Violation\"): plumbline node set NODE --chain grub",
        "the link goes down when the loader takes the card over: LACP without fallback (requests stop after the loader), or spanning tree on the switch port",
        "the loader may not fit the card: try another chain",
    ],
};

const SCRIPT_DEPLOYER: Gap = Gap {
    reached: "the script that starts the deployer was fetched",
    expected: "the deployer's kernel",
    due: secs(40),
    advice: &[
        "the loader could not go on: the machine's screen or serial console says why; it tries five times and reboots",
    ],
};

const SCRIPT_LOCAL: Gap = Gap {
    reached: "the machine was told to boot its disk",
    expected: "the agent of the installed system",
    due: secs(300),
    advice: &[
        "the disk may not boot: does the screen show GRUB, a kernel, a login?",
        "firmware may try other devices for minutes before the disk",
        "the system may run without network: then nothing of it is heard here. Its console tells",
        "port 8443/tcp may be blocked between the node and this server",
    ],
};

const KERNEL: Gap = Gap {
    reached: "the deployer's kernel was asked for",
    expected: "its initial ramdisk, then the deployer",
    due: secs(120),
    advice: &[
        "the transfer may be slow or broken off: large HTTP transfers stall on some firmware after packet loss",
        "the machine may have too little memory for kernel and ramdisk",
    ],
};

const INITRAMFS: Gap = Gap {
    reached: "kernel and ramdisk of the deployer were fetched",
    expected: "the deployer's token",
    due: secs(180),
    advice: &[
        "the kernel may not start, or not find its console: connect to the serial console, or set `console=` for this machine",
        "the network card may need a driver that the deployer lacks: its console says NO NETWORK INTERFACE",
        "port 8443/tcp may be blocked between the machine and this server",
        "the machine's memory may be too small or faulty",
    ],
};

const CLAIMED: Gap = Gap {
    reached: "the deployer runs and is known",
    expected: "its inventory",
    due: secs(120),
    advice: &["something of the hardware may hang while it is read: the machine's console says what comes last"],
};

const INSTALLED: Gap = Gap {
    reached: "the installation ended well",
    expected: "the machine's restart into its disk",
    due: secs(300),
    advice: &["long self-tests of firmware take minutes; after that look at the machine's screen"],
};

const STAGE: Gap = Gap {
    reached: "an installation is under way",
    expected: "its next stage",
    due: secs(600),
    advice: &[
        "the deployer is silent: its console says what it does. After three minutes of silence the attempt counts as lost",
    ],
};

const WAITS_ADVICE: [&str; 2] = [
    "nothing is wrong: it goes on by itself when others have what they fetch",
    "where the network could carry more at a time, boot.http_bodies_max in the server's configuration allows more",
];

fn gap(seen: &Seen) -> Option<Gap> {
    Some(match seen {
        Seen::Offered(_) => OFFERED,
        Seen::Confirmed(Told::Loader) => TOLD_LOADER,
        Seen::Confirmed(Told::HttpLoader) => TOLD_HTTP_LOADER,
        Seen::Confirmed(Told::Script) => TOLD_SCRIPT,
        Seen::Confirmed(Told::Address) => TOLD_ADDRESS,
        Seen::LoaderFetched(_) => LOADER_FETCHED,
        Seen::Script(Scripted::Deployer) => SCRIPT_DEPLOYER,
        Seen::Script(Scripted::Local) => SCRIPT_LOCAL,
        Seen::Kernel => KERNEL,
        Seen::Initramfs => INITRAMFS,
        Seen::Claimed => CLAIMED,
        Seen::Stage(_) => STAGE,
        Seen::Installed => INSTALLED,
        Seen::Ignored(_)
        | Seen::OtherServer(_)
        | Seen::LoaderFailed(_)
        | Seen::Script(Scripted::Refused | Scripted::Held)
        | Seen::NoDeployer(_)
        | Seen::ClaimRefused(_)
        | Seen::ForeignLease(_)
        | Seen::Inventoried
        | Seen::InstallationFailed(_)
        | Seen::AgentUp
        | Seen::Scanned => return None,
    })
}

/// Says where a machine stands on its way, and what may be wrong.
#[must_use]
pub fn why(situation: &Situation<'_>) -> Why {
    if let Some(heard) = situation.agent_heard.filter(|heard| *heard <= AGENT_SILENCE) {
        let is_of_a_start = |seen: &Seen| !matches!(seen, Seen::AgentUp | Seen::Scanned);
        let started_since = situation
            .last
            .is_some_and(|(seen, ago)| is_of_a_start(seen) && ago < heard);
        if !started_since {
            return fine("its agent is heard", "the installed system runs and its agent speaks");
        }
    }
    if let Some(waits) = situation.download_waits {
        let gap = situation.last.and_then(|(seen, _)| gap(seen));
        return Why {
            is_stuck: false,
            reached: gap.map_or("it asked for a download", |gap| gap.reached).to_owned(),
            expected: "its turn to download".to_owned(),
            sentence: format!("it {waits}"),
            advice: WAITS_ADVICE.map(str::to_owned).into(),
        };
    }
    let Some((seen, ago)) = situation.last else {
        let sentence = "nothing was ever seen of this machine on the network";
        return match situation.dhcp {
            DhcpSight::Seen => stuck(&NEVER, sentence, None),
            DhcpSight::Unseen => stuck(&NEVER_WITHOUT_DHCP, sentence, None),
        };
    };
    if let Some(gap) = gap(seen) {
        let detail = match seen {
            Seen::LoaderFetched(name) => Some(name.clone()),
            Seen::Stage(stage) => Some(stage.clone()),
            _ => None,
        };
        if ago <= gap.due {
            return Why {
                is_stuck: false,
                reached: with(gap.reached, detail.as_deref()),
                expected: gap.expected.to_owned(),
                sentence: format!("it is on its way: {} is due", gap.expected),
                advice: Vec::new(),
            };
        }
        let sentence = format!("{}, and then nothing: {} did not come", gap.reached, gap.expected);
        return stuck(&gap, &sentence, detail.as_deref());
    }
    ended(seen, situation)
}

/// Steps that are an end: of a failure, or of waiting for a person.
fn ended(seen: &Seen, situation: &Situation<'_>) -> Why {
    let failed = |reached: &str, sentence: String, advice: &[&str]| Why {
        is_stuck: true,
        reached: reached.to_owned(),
        expected: String::new(),
        sentence,
        advice: advice.iter().map(|&line| line.to_owned()).collect(),
    };
    match seen {
        Seen::Ignored(reason) => failed(
            "its DHCP request was not answered",
            format!("its DHCP request was not answered: {reason}"),
            &[
                "no_loader: the machine's kind of firmware has no loader in its chain: plumbline node set NODE --chain auto",
                "no_lease: the address pool is empty; make it larger or wait for leases to run out",
            ],
        ),
        Seen::OtherServer(address) => failed(
            "it took the offer of another DHCP server",
            format!("another DHCP server, {address}, won: the machine took its offer and not this server's"),
            &[
                "find that server (the switch's table of MACs tells its port) and take it off this network",
                "where it is the site's own, let this server only add the boot answers: dhcp = \"proxy\"",
            ],
        ),
        Seen::LoaderFailed(detail) => failed(
            "the loader's transfer broke off",
            format!("the loader's transfer broke off: {detail}"),
            &[
                "packets may be too large for the way (MTU) or lost: look at the switch port's error counters",
                "a firewall may let only the first packet through: TFTP goes on from another port than 69",
            ],
        ),
        Seen::Script(Scripted::Refused) => failed(
            "its script refuses it",
            format!("this server refuses to boot it: {}", situation.state_reason),
            &["a quarantined node needs a person: plumbline node release NODE, after looking at its events"],
        ),
        Seen::Script(Scripted::Held) => Why {
            is_stuck: false,
            reached: "it is held in its loader".to_owned(),
            expected: "somebody who lifts the order".to_owned(),
            sentence: "somebody ordered it to boot nothing; it asks again every five minutes".to_owned(),
            advice: vec![
                "plumbline node boot NODE says who and why; plumbline node boot NODE --normal lifts it".to_owned(),
            ],
        },
        Seen::ForeignLease(reason) => failed(
            "it was turned down with an address that another DHCP server gave it",
            format!("two DHCP servers give addresses where it is: {reason}"),
            &[
                "it restarts and tries again by itself; it gets through when this server's offer comes first",
                "find the other server (plumbline dhcp-servers; the switch's table of MACs tells its port) and take it off this network, or let the switches drop its answers (DHCP snooping)",
                "where it is the site's own, let this server only add the boot answers: dhcp = \"proxy\"",
            ],
        ),
        Seen::NoDeployer(architecture) => failed(
            "its loader was told that there is no deployer for it",
            format!(
                "this machine is {architecture}, and there is no deployer for {architecture}: it cannot be installed"
            ),
            &[
                "Plumbline installs amd64 (x86-64) machines; others get as far as this and go on to their next boot device",
                "is it the machine that was meant? Its firmware or the site's DHCP server says what it is",
                "where it is somebody else's, forget it: plumbline node remove NODE",
            ],
        ),
        Seen::ClaimRefused(reason) => failed(
            "its deployer was turned down",
            format!("its deployer was turned down: {reason}"),
            &["a token is good for 20 minutes and one machine; restart the machine for a new one"],
        ),
        Seen::InstallationFailed(reason) => failed(
            "its installation failed",
            format!("its installation failed: {reason}"),
            &["mend the cause and ask for the deployment again: plumbline node deploy NODE --image IMAGE"],
        ),
        Seen::Inventoried => match situation.state {
            NodeState::WaitingApproval => Why {
                is_stuck: false,
                reached: "the deployer has taken inventory".to_owned(),
                expected: "somebody's approval".to_owned(),
                sentence: "it waits in the deployer for somebody's approval".to_owned(),
                advice: vec!["plumbline node approve NODE --name NAME --image IMAGE".to_owned()],
            },
            _ => fine(
                "the deployer has taken inventory",
                "the deployer waits for what it is told",
            ),
        },
        // The agent was up and is silent now, and nothing of a new start was seen.
        _ => failed(
            "its agent was up",
            "the installed system ran, and its agent is silent since".to_owned(),
            &[
                "is the machine on? Its screen or serial console says",
                "`systemctl status plumbline-agent` on the node; port 8443/tcp to this server",
            ],
        ),
    }
}

fn fine(reached: &str, sentence: &str) -> Why {
    Why {
        is_stuck: false,
        reached: reached.to_owned(),
        expected: String::new(),
        sentence: sentence.to_owned(),
        advice: Vec::new(),
    }
}

fn stuck(gap: &Gap, sentence: &str, detail: Option<&str>) -> Why {
    Why {
        is_stuck: true,
        reached: with(gap.reached, detail),
        expected: gap.expected.to_owned(),
        sentence: sentence.to_owned(),
        advice: gap.advice.iter().map(|&line| line.to_owned()).collect(),
    }
}

fn with(reached: &str, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("{reached}: {detail}"),
        None => reached.to_owned(),
    }
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
