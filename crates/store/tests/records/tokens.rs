use super::{inventoried_node, store};

const MAC: &str = "52:54:00:aa:00:01";

#[tokio::test]
async fn a_token_is_the_same_until_claimed_and_binds_one_key() {
    let (_database, store) = store().await;
    let node = inventoried_node(&store, "gpu-001", MAC).await;
    let first = store.token_issue(node, None, MAC, "10.0.0.2").await.unwrap();
    assert_eq!(
        store.token_issue(node, None, MAC, "10.0.0.2").await.unwrap(),
        first,
        "fetched again"
    );
    assert!(store.token_claim(first, b"key").await.unwrap());
    assert!(
        store.token_claim(first, b"key").await.unwrap(),
        "the answer was lost and the claim repeated"
    );
    assert!(!store.token_claim(first, b"other").await.unwrap());
    assert_ne!(
        store.token_issue(node, None, MAC, "10.0.0.2").await.unwrap(),
        first,
        "the next boot"
    );
}

#[tokio::test]
async fn two_fetches_at_once_get_one_token() {
    let (_database, store) = store().await;
    let node = inventoried_node(&store, "gpu-001", MAC).await;
    let (one, two) = tokio::join!(
        store.token_issue(node, None, MAC, "10.0.0.2"),
        store.token_issue(node, None, MAC, "10.0.0.2")
    );
    assert_eq!(one.unwrap(), two.unwrap());
}
