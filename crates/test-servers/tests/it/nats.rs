//! The private nats-server, as tests of other crates use it; spoken to without a driver.

use std::net::TcpStream;

use punctual_test_servers::NatsServer;
use serde_json::{Value, json};

use crate::raw_client::RawClient;

/// A stream `S` on file storage for the subject `s`, with these messages.
fn stream_with(server: &NatsServer, messages: &[&str]) -> RawClient {
    let mut client = RawClient::connect(server.port());
    let config = json!({"name": "S", "subjects": ["s"], "storage": "file", "num_replicas": 1});
    let made = client.request("$JS.API.STREAM.CREATE.S", &config.to_string());
    assert_eq!(made["error"], Value::Null, "{made}");
    for message in messages {
        let ack = client.request("s", message);
        assert_eq!(ack["stream"], "S", "{ack}");
    }
    client
}

fn count(server: &NatsServer) -> Value {
    let mut client = RawClient::connect(server.port());
    client.request("$JS.API.STREAM.INFO.S", "")["state"]["messages"].clone()
}

#[test]
fn it_takes_large_messages_and_has_jetstream() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let client = RawClient::connect(server.port());
    assert_eq!(client.info["jetstream"], true);
    assert_eq!(client.info["max_payload"], 8 * 1024 * 1024);
    assert_eq!(server.url(), format!("nats://127.0.0.1:{}", server.port()));
    assert!(server.is_running());
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_after_a_stop() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    stream_with(&server, &["one", "two"]);
    let port = server.port();
    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(count(&server), 2);
    server.stop();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(count(&server), 2);
}

#[test]
fn a_store_that_is_replaced_has_only_what_the_copy_has() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    stream_with(&server, &["one"]);
    server.stop();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    server.copy_store_to(&copy);
    server.restart();
    RawClient::connect(server.port()).request("s", "two");
    assert_eq!(count(&server), 2);
    server.kill();
    server.replace_store_from(&copy);
    server.restart();
    assert_eq!(count(&server), 1);
}

#[test]
#[should_panic(expected = "stop the server before its store is replaced")]
fn the_store_of_a_running_server_is_not_replaced() {
    let Some(server) = NatsServer::start() else {
        panic!("stop the server before its store is replaced: there is none");
    };
    server.replace_store_from(&server.store_dir());
}

#[test]
fn a_paused_one_is_silent_and_goes_on_where_it_was() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let mut client = stream_with(&server, &["one"]);
    server.pause();
    client.send("s", "two");
    assert!(server.is_running());
    assert!(client.is_silent());
    server.resume();
    assert_eq!(client.answer()["stream"], "S");
}

#[test]
fn a_paused_one_can_be_killed() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    server.pause();
    server.kill();
    server.restart();
    assert!(server.is_running());
}

#[test]
fn more_lines_of_configuration_count() {
    let lines = "authorization { token: \"sesame\" }\nmax_payload: 1MB";
    let Some(server) = NatsServer::start_with(lines) else {
        return;
    };
    let client = RawClient::connect(server.port());
    assert_eq!(client.info["auth_required"], true);
    assert_eq!(client.info["max_payload"], 1024 * 1024);
}

#[test]
fn nothing_is_left_when_it_is_dropped() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let (port, store) = (server.port(), server.store_dir());
    assert!(store.exists());
    drop(server);
    assert!(!store.exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
