//! Machines that the deployer does not run on: told so in their loader, and in their timeline.

use axum::http::StatusCode;
use plumbline::app::trace;
use protocol::NodeId;

use super::support::{Listener, deployer_register};

const MAC: &str = "52:54:00:aa:00:01";

async fn site() -> (Listener, NodeId) {
    let listener = Listener::start(&[("snponly.efi", b"loader")], "").await;
    let machine_id = uuid::Uuid::new_v4().simple().to_string();
    let store = &listener.app.store;
    let node = store.node_create("gpu-001", MAC, &machine_id).await.unwrap();
    deployer_register(store).await;
    (listener, node)
}

async fn script(listener: &Listener, path: &str) -> String {
    let answer = listener.get(path, None).await;
    assert_eq!(answer.status, StatusCode::OK);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test]
async fn an_arm64_machine_is_told_that_there_is_no_deployer_for_it() {
    let (listener, node) = site().await;
    for (path, leaves) in [
        // As DHCP names it: PXE, and UEFI HTTP boot.
        (format!("/boot/v1/script?mac={MAC}&arch=11"), "exit 1"),
        (format!("/boot/v1/script?mac={MAC}&arch=19"), "exit 1"),
        // As the loader says it.
        (format!("/boot/v1/script?mac={MAC}&buildarch=arm64"), "exit 1"),
        (format!("/boot/v1/grub/{MAC}/arm64/grub.cfg"), "exit"),
    ] {
        let text = script(&listener, &path).await;
        assert!(text.contains("there is no deployer for arm64"), "{path}: {text}");
        assert!(text.contains(leaves), "the machine is let go: {text}");
        for started in ["vmlinuz", "plumbline.token"] {
            assert!(!text.contains(started), "{path}: {started} in {text}");
        }
        let why = trace::node_why(&listener.app, node).await.unwrap();
        assert!(
            why.is_stuck && why.sentence.contains("this machine is arm64"),
            "{why:?}"
        );
    }
}

#[tokio::test]
async fn an_amd64_machine_gets_its_deployer_however_its_architecture_is_said() {
    let (listener, _) = site().await;
    let query = |more: &str| format!("/boot/v1/script?mac={MAC}{more}");
    // Nothing said, or by DHCP alone: the loader makes sure of it before it loads a kernel.
    for more in ["", "&arch=7", "&arch=0", "&arch=16", "&arch=nonsense"] {
        let text = script(&listener, &query(more)).await;
        assert!(
            text.contains("vmlinuz") && text.contains("goto other_architecture"),
            "{more}: {text}"
        );
    }
    // What the loader itself said ends it, known here or not: else it would ask without end.
    for more in [
        "&buildarch=x86_64",
        "&buildarch=i386&arch=7",
        "&buildarch=",
        "&buildarch=z80",
    ] {
        let text = script(&listener, &query(more)).await;
        assert!(
            text.contains("vmlinuz") && !text.contains("other_architecture"),
            "{more}: {text}"
        );
    }
    let text = script(&listener, &format!("/boot/v1/grub/{MAC}/x86_64/grub.cfg")).await;
    assert!(text.contains("vmlinuz"), "{text}");
}
