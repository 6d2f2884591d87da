//! The store's functions on a real PostgreSQL, a database each.

mod deployments;
mod discovery;
mod leases;
mod remediation;
mod reports;
mod reviews;
mod tokens;

use lifecycle::NodeState;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::{DiskRule, Layout};
use store::{NewDeployment, NewImage, Store};
use testkit::TestDatabase;

/// A store over a database of its own; keep the first value for as long as the second is used.
pub async fn store() -> (TestDatabase, Store) {
    let database = TestDatabase::create().await;
    let store = Store::new(database.pool.clone());
    (database, store)
}

/// A node that has been inventoried.
pub async fn inventoried_node(store: &Store, name: &str, mac: &str) -> NodeId {
    let node = store
        .node_create(name, mac, "0123456789abcdef0123456789abcdef")
        .await
        .unwrap();
    store.node_set_inventory(node, &Default::default(), &[]).await.unwrap();
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::WaitingApproval);
    node
}

/// Registers an image and returns its digest.
pub async fn image(store: &Store, kind: &str, name: &str) -> Digest {
    let digest = Digest::of(format!("{kind} {name}").as_bytes());
    let image = NewImage {
        digest,
        kind: kind.into(),
        name: name.into(),
        version: "20260101T000000Z".into(),
        description: None,
        architecture: "amd64".into(),
        files: 1,
        content_bytes: 1,
        stored_bytes: 1,
        files_by_class: Default::default(),
        signer: None,
    };
    store.image_register(&image).await.unwrap();
    digest
}

/// What somebody asks for with this node.
pub async fn new_deployment(store: &Store, node_id: NodeId) -> NewDeployment {
    NewDeployment {
        node_id,
        image: image(store, "os", "debian").await,
        channel: None,
        agent_layer: image(store, "agent", "agent").await,
        disk_rule: DiskRule::default(),
        layout: Layout {
            esp_mib: 256,
            esp_volume_id: "1A2B3C4D".into(),
            esp_label: "PL12AB34CD".to_owned(),
            root_uuid: uuid::Uuid::new_v4(),
        },
        mode: protocol::latest::DeployMode::InPlace,
        keep: Vec::new(),
        attempts_max: 3,
        requested_by: "admin".into(),
    }
}
