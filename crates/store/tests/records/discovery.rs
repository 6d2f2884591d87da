use lifecycle::NodeState;
use time::{Duration, OffsetDateTime};

use super::store;
use ::store::WindowPlace;

fn subnet() -> WindowPlace {
    WindowPlace::Subnet("10.77.0.0/24".to_owned())
}

#[tokio::test]
async fn a_window_never_admits_more_machines_than_it_says() {
    let (_database, store) = store().await;
    let ends = OffsetDateTime::now_utc() + Duration::minutes(5);
    let window = store.discovery_arm(&subnet(), ends, 3, "admin").await.unwrap();
    let admissions = (0..12).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let mac = format!("52:54:00:aa:00:{number:02x}");
            store
                .discovery_admit(window.id, &mac, "0123456789abcdef0123456789abcdef")
                .await
                .unwrap()
        })
    });
    let mut admitted = 0;
    for admission in admissions.collect::<Vec<_>>() {
        admitted += usize::from(admission.await.unwrap().is_some());
    }
    assert_eq!(admitted, 3);
    assert!(
        store.discovery_list_open().await.unwrap().is_empty(),
        "a full window is not open"
    );
}

#[tokio::test]
async fn a_machine_that_asks_twice_takes_one_place_and_loses_its_sighting() {
    let (_database, store) = store().await;
    let mac = "52:54:00:aa:00:01";
    store
        .sighting_record(mac, Some("PXEClient"), Some(7), &Default::default())
        .await
        .unwrap();
    store
        .sighting_record(mac, None, None, &Default::default())
        .await
        .unwrap();
    let sighting = store.sighting_list().await.unwrap().remove(0);
    assert_eq!(
        (sighting.count, sighting.vendor_class.as_deref()),
        (2, Some("PXEClient"))
    );

    let ends = OffsetDateTime::now_utc() + Duration::minutes(5);
    let window = store.discovery_arm(&subnet(), ends, 2, "admin").await.unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    let node = store.discovery_admit(window.id, mac, id).await.unwrap().unwrap();
    assert_eq!(
        store.discovery_admit(window.id, mac, id).await.unwrap(),
        None,
        "it is known now"
    );
    assert_eq!(store.discovery_list_open().await.unwrap()[0].nodes_used, 1);
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::Discovering);
    assert!(store.sighting_list().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_expired_or_disarmed_window_admits_nobody() {
    let (_database, store) = store().await;
    let id = "0123456789abcdef0123456789abcdef";
    let past = OffsetDateTime::now_utc() - Duration::minutes(1);
    let expired = store.discovery_arm(&subnet(), past, 5, "admin").await.unwrap();
    assert_eq!(
        store
            .discovery_admit(expired.id, "52:54:00:aa:00:01", id)
            .await
            .unwrap(),
        None
    );
    let ends = OffsetDateTime::now_utc() + Duration::minutes(5);
    let window = store.discovery_arm(&subnet(), ends, 5, "admin").await.unwrap();
    assert_eq!(store.discovery_disarm().await.unwrap(), 1);
    assert_eq!(
        store.discovery_admit(window.id, "52:54:00:aa:00:01", id).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn other_dhcp_servers_are_counted_and_bounded() {
    let (_database, store) = store().await;
    for _ in 0..2 {
        store
            .dhcp_server_seen("10.77.0.2", "eno1", "52:54:00:aa:00:01")
            .await
            .unwrap();
    }
    for number in 0..300 {
        let forged = format!("192.0.2.{number}");
        store
            .dhcp_server_seen(&forged, "eno1", "52:54:00:aa:00:02")
            .await
            .unwrap();
    }
    let servers = store.dhcp_server_list().await.unwrap();
    assert_eq!(servers.len(), 256);
    let real = servers.iter().find(|server| server.address == "10.77.0.2").unwrap();
    assert_eq!((real.count, real.last_mac.as_str()), (2, "52:54:00:aa:00:01"));
    store
        .dhcp_server_seen("10.77.0.2", "eno1", "52:54:00:aa:00:03")
        .await
        .unwrap();
    let first = store.dhcp_server_list().await.unwrap().remove(0);
    assert_eq!((first.address.as_str(), first.count), ("10.77.0.2", 3));
}

/// Two stray routers on two segments often have one address.
#[tokio::test]
async fn a_dhcp_server_on_two_interfaces_is_two() {
    let (_database, store) = store().await;
    for interface in ["eno1", "eno2", "eno1"] {
        store
            .dhcp_server_seen("192.168.1.1", interface, "52:54:00:aa:00:01")
            .await
            .unwrap();
    }
    let servers = store.dhcp_server_list().await.unwrap();
    let mut counted: Vec<(&str, i64)> = servers.iter().map(|one| (one.interface.as_str(), one.count)).collect();
    counted.sort_unstable();
    assert_eq!(counted, [("eno1", 2), ("eno2", 1)]);
}
