use super::*;

fn after(seen: &Seen, ago_secs: u64) -> Why {
    why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::Deploying,
        state_reason: "because",
        last: Some((seen, secs(ago_secs))),
        download_waits: None,
        agent_heard: None,
    })
}

#[test]
fn a_machine_that_never_asked_is_told_apart() {
    let nothing = why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::Listed,
        state_reason: "",
        last: None,
        download_waits: None,
        agent_heard: None,
    });
    assert!(
        nothing.is_stuck && nothing.advice.iter().any(|line| line.contains("sightings")),
        "{nothing:?}"
    );
}

#[test]
fn where_dhcp_is_the_sites_no_dhcp_request_is_missed() {
    let nothing = why(&Situation {
        dhcp: DhcpSight::Unseen,
        state: NodeState::Listed,
        state_reason: "",
        last: None,
        download_waits: None,
        agent_heard: None,
    });
    assert!(nothing.is_stuck && nothing.expected.contains("script"), "{nothing:?}");
    let said = format!("{nothing:?}");
    assert!(
        !said.contains("DHCP request") && said.contains("the site's DHCP server"),
        "{said}"
    );
}

#[test]
fn each_step_has_its_time_before_anything_is_called_wrong() {
    let told = [Told::Address, Told::Loader, Told::HttpLoader, Told::Script];
    let steps = told
        .into_iter()
        .flat_map(|told| [Seen::Offered(told), Seen::Confirmed(told)]);
    let others = [
        Seen::LoaderFetched("snponly.efi".into()),
        Seen::Script(Scripted::Deployer),
        Seen::Script(Scripted::Local),
        Seen::Kernel,
        Seen::Initramfs,
        Seen::Claimed,
        Seen::Stage("write".into()),
        Seen::Installed,
    ];
    for seen in steps.chain(others) {
        let (soon, late) = (after(&seen, 5), after(&seen, 3_600));
        assert!(!soon.is_stuck && soon.advice.is_empty(), "{seen:?}: {soon:?}");
        assert!(
            late.is_stuck && !late.advice.is_empty() && !late.expected.is_empty(),
            "{seen:?}: {late:?}"
        );
    }
}

#[test]
fn requests_that_stop_after_the_loader_point_at_the_link_and_at_secure_boot() {
    let why = after(&Seen::LoaderFetched("snponly.efi".into()), 120);
    assert_eq!(why.reached, "the loader was fetched whole: snponly.efi");
    let advice = why.advice.join("\n");
    assert!(
        advice.contains("LACP without fallback") && advice.contains("--chain grub"),
        "{advice}"
    );
}

#[test]
fn ends_say_their_reason() {
    for (seen, word) in [
        (Seen::Ignored("no_loader".into()), "no_loader"),
        (Seen::LoaderFailed("timed_out: 512 bytes".into()), "512 bytes"),
        (Seen::OtherServer("10.77.0.2".into()), "10.77.0.2"),
        (
            Seen::ForeignLease("it comes from 10.77.0.66".into()),
            "two DHCP servers",
        ),
        (Seen::ClaimRefused("too old".into()), "too old"),
        (Seen::NoDeployer("arm64".into()), "no deployer for arm64"),
        (Seen::InstallationFailed("two disks".into()), "two disks"),
        (Seen::Script(Scripted::Refused), "because"),
    ] {
        let why = after(&seen, 1);
        assert!(why.is_stuck && why.sentence.contains(word), "{seen:?}: {why:?}");
    }
}

#[test]
fn an_agent_that_speaks_ends_the_question_until_the_next_start() {
    let started = Seen::Script(Scripted::Local);
    let with_agent = |ago, heard| {
        why(&Situation {
            dhcp: DhcpSight::Seen,
            state: NodeState::Deployed,
            state_reason: "",
            last: Some((&started, secs(ago))),
            download_waits: None,
            agent_heard: Some(secs(heard)),
        })
    };
    assert_eq!(
        with_agent(900, 10).sentence,
        "the installed system runs and its agent speaks"
    );
    let restarted = with_agent(30, 60);
    assert!(
        !restarted.is_stuck && restarted.expected.contains("agent"),
        "{restarted:?}"
    );
    assert!(
        with_agent(900, 800).is_stuck,
        "the agent that was heard before the start is none"
    );
    let scanned = why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::Deployed,
        state_reason: "",
        last: Some((&Seen::Scanned, secs(2))),
        download_waits: None,
        agent_heard: Some(secs(9)),
    });
    assert!(
        !scanned.is_stuck,
        "a report that is newer than the heartbeat is no start: {scanned:?}"
    );
    let silent = why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::Deployed,
        state_reason: "",
        last: Some((&Seen::Scanned, secs(900))),
        download_waits: None,
        agent_heard: Some(secs(600)),
    });
    assert!(silent.is_stuck && silent.sentence.contains("silent"), "{silent:?}");
}

#[test]
fn waiting_for_approval_is_nothing_wrong() {
    let waiting = why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::WaitingApproval,
        state_reason: "",
        last: Some((&Seen::Inventoried, secs(9_000))),
        download_waits: None,
        agent_heard: None,
    });
    assert!(
        !waiting.is_stuck && waiting.expected.contains("approval"),
        "{waiting:?}"
    );
}

#[test]
fn a_download_that_waits_for_others_is_nothing_wrong_however_long_it_takes() {
    let waits = "waits for a free download: 256 of 256 in use, 31 before it";
    let why = why(&Situation {
        dhcp: DhcpSight::Seen,
        state: NodeState::Deploying,
        state_reason: "",
        last: Some((&Seen::Kernel, secs(9_000))),
        download_waits: Some(waits),
        agent_heard: None,
    });
    assert!(!why.is_stuck && !why.advice.is_empty(), "{why:?}");
    assert_eq!(why.sentence, format!("it {waits}"));
    assert_eq!(why.reached, KERNEL.reached);
}
