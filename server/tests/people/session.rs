//! Signing in and out.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use plumbline::app::auth;
use serde_json::json;
use store::Store;
use testkit::TestDatabase;

use super::Server;
use super::support::PASSWORD;

const SESSION: &str = "/api/v1/session";

#[tokio::test]
async fn a_session_lasts_until_it_is_ended() {
    let server = Server::start().await;
    let token = server.sign_in("admin").await;
    let who = server.ask(Method::GET, SESSION, Some(&token), None).await;
    assert_eq!(who.body, json!({ "name": "admin", "role": "admin" }));
    let ended = server.ask(Method::DELETE, SESSION, Some(&token), None).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    let gone = server.ask(Method::GET, SESSION, Some(&token), None).await;
    assert_eq!(gone.status, StatusCode::UNAUTHORIZED);
    let other = server.ask(Method::GET, SESSION, Some(&server.admin), None).await;
    assert_eq!(other.status, StatusCode::OK, "another session goes on");
}

#[tokio::test]
async fn the_cookie_opens_what_the_token_does_and_scripts_cannot_read_it() {
    let server = Server::start().await;
    let body = json!({ "name": "viewer", "password": PASSWORD });
    let answer = server.ask(Method::POST, SESSION, None, Some(&body)).await;
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap();
    let request = Request::get(SESSION).header(header::COOKIE, pair);
    let who = server.request(request.body(Body::empty()).unwrap()).await;
    assert_eq!(who.body["name"], "viewer");
}

#[tokio::test]
async fn a_wrong_name_and_a_wrong_password_get_one_answer() {
    let server = Server::start().await;
    let mut answers = Vec::new();
    for name in ["admin", "nobody", "No Name"] {
        let body = json!({ "name": name, "password": "wrong horse battery" });
        let answer = server.ask(Method::POST, SESSION, None, Some(&body)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        answers.push(answer.error().to_owned());
    }
    answers.dedup();
    assert_eq!(answers, ["wrong name or password"]);
}

#[tokio::test]
async fn failed_sign_ins_make_the_next_one_wait() {
    let server = Server::start().await;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let body = json!({ "name": "nobody", "password": "wrong horse battery" });
        let answer = server.ask(Method::POST, SESSION, None, Some(&body)).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.error().contains("try again in"), "{answer:?}");
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..5], [StatusCode::UNAUTHORIZED; 5]);
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    server.sign_in("admin").await;
}

#[tokio::test]
async fn a_new_password_ends_the_sessions_of_the_old_one() {
    let server = Server::start().await;
    let users = json!({ "name": "tech", "password": PASSWORD, "role": "admin" });
    let added = server.post("/api/v1/users", users.clone()).await;
    assert_eq!(
        (added.status, &added.body["role"]),
        (StatusCode::CREATED, &json!("admin"))
    );
    assert_eq!(server.post("/api/v1/users", users).await.status, StatusCode::CONFLICT);
    let token = server.sign_in("tech").await;

    let body = json!({ "password": "too short" });
    let path = "/api/v1/users/tech/password";
    let short = server.ask(Method::PATCH, path, Some(&server.admin), Some(&body)).await;
    assert_eq!(short.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(short.error().contains("at least 12"), "{short:?}");

    let body = json!({ "password": "another horse battery" });
    let changed = server.ask(Method::PATCH, path, Some(&server.admin), Some(&body)).await;
    assert_eq!(changed.status, StatusCode::NO_CONTENT);
    let old = server.ask(Method::GET, SESSION, Some(&token), None).await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
    let body = json!({ "name": "tech", "password": PASSWORD });
    let old = server.ask(Method::POST, SESSION, None, Some(&body)).await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_first_start_makes_one_admin_and_tells_its_password_once() {
    let database = TestDatabase::create().await;
    let store = Store::new(database.pool.clone());
    let password = auth::first_admin(&store).await.unwrap().unwrap();
    assert_eq!(auth::first_admin(&store).await.unwrap(), None);
    let guard = auth::SignInGuard::default();
    let signed_in = auth::sign_in(&store, &guard, "admin", &password).await.unwrap();
    assert_eq!(signed_in.role, auth::Role::Admin);
    for key in [
        signed_in.token.as_bytes().to_vec(),
        hex::decode(&signed_in.token).unwrap(),
    ] {
        assert_eq!(
            store.session_find(&key).await.unwrap(),
            None,
            "the database holds no token"
        );
    }
}

#[tokio::test]
async fn a_program_gets_a_token_of_its_own_that_ends_with_the_password() {
    let server = Server::start().await;
    let too_long = server
        .post("/api/v1/users/viewer/tokens", json!({ "days": 1000 }))
        .await;
    assert!(too_long.error().contains("1 to 366"), "{too_long:?}");
    let nobody = server.post("/api/v1/users/nobody/tokens", json!({ "days": 1 })).await;
    assert_eq!(nobody.status, StatusCode::NOT_FOUND);
    let made = server.post("/api/v1/users/viewer/tokens", json!({ "days": 90 })).await;
    assert_eq!(
        (made.status, &made.body["role"]),
        (StatusCode::CREATED, &json!("viewer")),
        "{made:?}"
    );
    let token = made.body["token"].as_str().unwrap();
    let session = server.ask(Method::GET, "/api/v1/session", Some(token), None).await;
    assert_eq!(session.body["name"], "viewer");
    let body = json!({ "password": "another correct horse" });
    let path = "/api/v1/users/viewer/password";
    let changed = server.ask(Method::PATCH, path, Some(&server.admin), Some(&body)).await;
    assert_eq!(changed.status, StatusCode::NO_CONTENT);
    let session = server.ask(Method::GET, "/api/v1/session", Some(token), None).await;
    assert_eq!(session.status, StatusCode::UNAUTHORIZED);
    let audit = server
        .ask(Method::GET, "/api/v1/audit", Some(&server.admin), None)
        .await;
    assert_eq!(
        (&audit.body[0]["action"], &audit.body[0]["object"]),
        (&json!("token_made"), &json!("viewer"))
    );
}
