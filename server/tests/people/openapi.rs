//! The description of the API is kept in the repository, as the web interface is built from it.

use testkit::golden;

#[test]
fn the_document_is_the_one_in_docs() {
    let document = plumbline::http::people::openapi().to_pretty_json().unwrap();
    golden("../docs/openapi.json", &(document + "\n"));
}

#[tokio::test]
async fn the_served_document_is_the_same() {
    let server = super::Server::start().await;
    let served = server
        .ask(axum::http::Method::GET, "/api/v1/openapi.json", None, None)
        .await;
    let own = serde_json::to_value(plumbline::http::people::openapi()).unwrap();
    assert_eq!(served.body, own);
}
