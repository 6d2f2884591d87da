use super::store;

const ONE: &str = "52:54:00:aa:00:01";
const TWO: &str = "52:54:00:aa:00:02";

#[tokio::test]
async fn an_address_is_one_machines_until_its_lease_ends() {
    let (_database, store) = store().await;
    assert!(store.lease_take("10.77.0.100", ONE, 3600).await.unwrap());
    assert!(store.lease_take("10.77.0.100", ONE, 3600).await.unwrap(), "renewed");
    assert!(!store.lease_take("10.77.0.100", TWO, 3600).await.unwrap());
    store.lease_release(ONE).await.unwrap();
    assert_eq!(
        store.lease_find(ONE).await.unwrap().unwrap().address,
        "10.77.0.100",
        "kept while nobody needs it"
    );
    assert!(store.lease_take("10.77.0.100", TWO, 3600).await.unwrap());
    assert!(store.lease_find(ONE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_declined_address_is_set_aside() {
    let (_database, store) = store().await;
    assert!(store.lease_take("10.77.0.100", ONE, 3600).await.unwrap());
    store.lease_decline(ONE).await.unwrap();
    assert!(store.lease_find(ONE).await.unwrap().is_none());
    assert!(
        !store.lease_take("10.77.0.100", ONE, 3600).await.unwrap(),
        "somebody else uses it"
    );
    assert!(store.lease_take("10.77.0.101", ONE, 3600).await.unwrap());
}

#[tokio::test]
async fn an_address_says_whose_it_is() {
    let (_database, store) = store().await;
    assert!(store.lease_take("10.77.0.100", ONE, 3600).await.unwrap());
    assert!(store.lease_take("10.77.0.101", TWO, 3600).await.unwrap());
    let owner = async |address| {
        let lease = store.lease_find_by_address(address).await.unwrap();
        lease.map(|lease| lease.mac)
    };
    assert_eq!(owner("10.77.0.101").await.as_deref(), Some(TWO));
    assert_eq!(owner("10.77.0.102").await, None);
    store.lease_decline(TWO).await.unwrap();
    assert_eq!(owner("10.77.0.101").await, None, "set aside: nobody's");
}

/// infra-controller#3663: leases outlive a server, so another instance knows whose address it is asked to renew.
#[tokio::test]
async fn infra_controller_3663_another_instance_knows_the_lease() {
    let (database, first) = store().await;
    assert!(first.lease_take("10.77.0.100", ONE, 3600).await.unwrap());
    let second = store::Store::new(database.pool.clone());
    assert_eq!(second.lease_find(ONE).await.unwrap().unwrap().address, "10.77.0.100");
    assert!(second.lease_take("10.77.0.100", ONE, 3600).await.unwrap(), "renewed");
    assert!(!second.lease_take("10.77.0.100", TWO, 3600).await.unwrap());
}
