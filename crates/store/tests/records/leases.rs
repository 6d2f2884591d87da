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
