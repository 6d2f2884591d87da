//! Full mode: leases, renewals and refusals (RFC 2131 section 4.3).

use netboot::dhcp::options::code;
use netboot::dhcp::{Decision, Destination, Header, LeaseEvent, MessageType, Mode, NodeStanding, Port, Request};

use crate::support::*;

fn acked(request: &Request) -> bool {
    let reply = full(request).reply;
    match reply.message_type {
        MessageType::Ack => {
            assert_eq!(reply.header.yiaddr, LEASED);
            true
        }
        MessageType::Nak => false,
        other => panic!("{other:?}"),
    }
}

fn in_full(request: &Request) -> Decision {
    decide(request, Mode::Full, Port::Server67)
}

#[test]
fn a_discover_is_offered_the_machines_address_with_its_network() {
    for (client, stage) in [
        (Client::new(), "address"),
        (Client::pxe(7), "loader"),
        (Client::http(0x10), "http_loader"),
    ] {
        for node in [NodeStanding::Listed, NodeStanding::Discovering] {
            let request = client.clone().discover();
            let offer = plan(decide_for(&request, Mode::Full, Port::Server67, node, Some(&lease())));
            assert_eq!(offer.reply.message_type, MessageType::Offer);
            assert_eq!(offer.reply.header.yiaddr, LEASED);
            assert_eq!(offer.boot.stage(), stage);
            let option = |code| offer.reply.options.get(code).unwrap().to_vec();
            assert_eq!(option(code::SUBNET_MASK), [255, 255, 255, 0]);
            assert_eq!(option(code::ROUTER), SERVER.octets());
            assert_eq!(option(code::DNS_SERVER), [SERVER.octets(), OTHER.octets()].concat());
            assert_eq!(option(code::LEASE_TIME), 3600_u32.to_be_bytes());
            assert_eq!(option(code::RENEWAL_TIME), 1800_u32.to_be_bytes());
            assert_eq!(option(code::REBINDING_TIME), 3150_u32.to_be_bytes());
            assert_eq!(offer.reply.server_id(), Some(SERVER));
        }
    }
    let decision = decide_for(
        &Client::new().discover(),
        Mode::Full,
        Port::Server67,
        NodeStanding::Listed,
        None,
    );
    assert_eq!(ignored(decision), "no_lease");
}

#[test]
fn an_address_of_its_own_is_confirmed_in_every_state() {
    let selecting = Client::new()
        .requested(LEASED)
        .server(SERVER)
        .kind(MessageType::Request);
    let rebooted = Client::new().requested(LEASED).kind(MessageType::Request);
    // To whichever instance is alive: no server identifier, and the address in ciaddr.
    let renewing = Client::new().ciaddr(LEASED).kind(MessageType::Request);
    let renewing_by_name = Client::new().ciaddr(LEASED).server(SERVER).kind(MessageType::Request);
    for request in [&selecting, &rebooted, &renewing, &renewing_by_name] {
        assert!(acked(request));
    }
    assert_eq!(full(&renewing).destination, Destination::Client(LEASED));
    assert_eq!(full(&selecting).destination, Destination::Broadcast);
}

#[test]
fn an_address_that_is_not_its_own_is_refused_aloud() {
    let selecting = Client::new().requested(OTHER).server(SERVER).kind(MessageType::Request);
    let rebooted = Client::new().requested(OTHER).kind(MessageType::Request);
    let renewing = Client::new().ciaddr(OTHER).kind(MessageType::Request);
    for request in [&selecting, &rebooted, &renewing] {
        assert!(!acked(request));
        let nak = full(request);
        assert_eq!(nak.destination, Destination::Broadcast);
        assert_eq!((nak.reply.header.yiaddr, nak.reply.header.ciaddr), (NOBODY, NOBODY));
        assert_eq!(nak.reply.options.get(code::LEASE_TIME), None);
        assert_eq!(nak.reply.options.get(code::BOOTFILE_NAME), None);
    }
    let mut relayed = Client::new().requested(OTHER);
    relayed.header.giaddr = SERVER;
    let nak = full(&relayed.kind(MessageType::Request));
    assert_eq!(nak.destination, Destination::Relay(SERVER));
    assert_ne!(
        nak.reply.header.flags & Header::BROADCAST,
        0,
        "the relay must broadcast it"
    );
}

#[test]
fn without_an_address_to_give_only_who_asked_this_server_is_refused() {
    let without = |request: Request| decide_for(&request, Mode::Full, Port::Server67, NodeStanding::Listed, None);
    let by_name = without(
        Client::new()
            .requested(LEASED)
            .server(SERVER)
            .kind(MessageType::Request),
    );
    assert_eq!(plan(by_name).reply.message_type, MessageType::Nak);
    // RFC 2131 section 4.3.2: a server without a record stays silent.
    assert_eq!(
        ignored(without(Client::new().requested(LEASED).kind(MessageType::Request))),
        "no_lease"
    );
    assert_eq!(
        ignored(without(Client::new().ciaddr(LEASED).kind(MessageType::Request))),
        "no_lease"
    );
    assert_eq!(
        ignored(in_full(&Client::new().kind(MessageType::Request))),
        "no_address_asked"
    );
}

#[test]
fn who_chose_another_server_is_left_alone() {
    for kind in [
        MessageType::Request,
        MessageType::Release,
        MessageType::Decline,
        MessageType::Inform,
    ] {
        let request = Client::new().requested(LEASED).ciaddr(LEASED).server(OTHER).kind(kind);
        assert_eq!(ignored(in_full(&request)), "other_server");
    }
}

#[test]
fn a_machine_keeps_its_address_from_rom_to_system() {
    for client_id in [
        &[0, 1, 2, 3][..],
        &[1, 0x52, 0x54, 0, 0xaa, 0, 1][..],
        &[0xff, 9, 9, 9, 9, 0, 1][..],
    ] {
        let request = Client::new().option(code::CLIENT_ID, client_id).discover();
        assert_eq!(request.identity(), Client::new().discover().identity());
        let offer = full(&request).reply;
        assert_eq!(offer.header.yiaddr, LEASED);
        assert_eq!(offer.options.get(code::CLIENT_ID), Some(client_id), "RFC 6842");
    }
}

#[test]
fn an_inform_is_answered_without_an_address_or_a_lease() {
    let ack = full(&Client::new().ciaddr(LEASED).kind(MessageType::Inform));
    assert_eq!(ack.reply.message_type, MessageType::Ack);
    assert_eq!((ack.reply.header.yiaddr, ack.reply.header.ciaddr), (NOBODY, LEASED));
    assert_eq!(ack.reply.options.get(code::LEASE_TIME), None);
    assert!(ack.reply.options.get(code::SUBNET_MASK).is_some());
    assert_eq!(ack.destination, Destination::Client(LEASED));
}

#[test]
fn a_lease_is_given_back_only_by_its_own_machine() {
    let released = in_full(&Client::new().ciaddr(LEASED).server(SERVER).kind(MessageType::Release));
    assert_eq!(released, Decision::Lease(LeaseEvent::Released { ip: LEASED }));
    let declined = in_full(
        &Client::new()
            .requested(LEASED)
            .server(SERVER)
            .kind(MessageType::Decline),
    );
    assert_eq!(declined, Decision::Lease(LeaseEvent::Declined { ip: LEASED }));
    assert_eq!(
        ignored(in_full(&Client::new().ciaddr(OTHER).kind(MessageType::Release))),
        "not_its_lease"
    );
    assert_eq!(
        ignored(in_full(&Client::new().requested(OTHER).kind(MessageType::Decline))),
        "not_its_lease"
    );
    assert_eq!(
        ignored(in_full(&Client::new().kind(MessageType::Release))),
        "no_address_asked"
    );
}
