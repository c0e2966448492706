//! The proxy: it cuts where it is told to, and neither side is left in doubt about what arrived.

use punctual_test_servers::{PostgresServer, Proxy, psql};

use crate::session::Session;

const TRANSACTION: &str = "BEGIN;\nINSERT INTO t VALUES (1);\nCOMMIT;\n";

/// A server with an empty table `t`, and a proxy in front of it.
fn server_and_proxy() -> Option<(PostgresServer, Proxy)> {
    let server = PostgresServer::start()?;
    server.execute("CREATE TABLE t (n int)");
    let proxy = Proxy::start(&server.url());
    Some((server, proxy))
}

#[test]
fn it_forwards_until_it_is_told_otherwise() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let url = format!("postgres://punctual@127.0.0.1:{}/postgres", proxy.port());
    assert_eq!(proxy.url(), url);
    assert_eq!(
        proxy.url_for(&server.url_as("u")),
        url.replace("punctual@", "u@")
    );
    // Longer than what is forwarded at a time, in both directions.
    let long = "x".repeat(300_000);
    let echoed = psql(&proxy.url(), &format!("SELECT '{long}'"));
    assert_eq!(echoed, Ok(long));
    assert_eq!((proxy.connections(), proxy.cuts()), (1, 0));
    let _open = Session::connect(&proxy.url());
    assert_eq!((proxy.connections(), proxy.cuts()), (2, 0));
}

#[test]
fn a_commit_that_is_cut_before_has_not_happened() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    proxy.cut_before("COMMIT");
    let lost = psql(&proxy.url(), TRANSACTION).unwrap_err();
    assert!(
        lost.contains("closed the connection unexpectedly"),
        "{lost}"
    );
    assert_eq!(server.execute("SELECT count(*) FROM t"), "0");
    // The server is done with it when the client notices: nothing is locked any more.
    let others = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass";
    assert_eq!(server.execute(others), "0");
    assert_eq!(proxy.cuts(), 1);
    // Once means once.
    assert_eq!(psql(&proxy.url(), TRANSACTION), Ok(String::new()));
    assert_eq!(server.execute("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_commit_that_is_cut_after_has_happened_and_nobody_was_told() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut bystander = Session::connect(&proxy.url());
    proxy.cut_after("COMMIT");
    let lost = psql(&proxy.url(), TRANSACTION).unwrap_err();
    assert!(
        lost.contains("closed the connection unexpectedly"),
        "{lost}"
    );
    assert_eq!(server.execute("SELECT count(*) FROM t"), "1");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(bystander.ask("SELECT 'still here'"), "still here");
}

#[test]
fn all_connections_are_cut_at_once_and_new_ones_are_made() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut sessions = [
        Session::connect(&proxy.url()),
        Session::connect(&proxy.url()),
    ];
    assert_eq!(proxy.open_connections(), 2);
    proxy.cut();
    assert_eq!((proxy.open_connections(), proxy.cuts()), (0, 2));
    for session in &mut sessions {
        session.send("SELECT 1");
    }
    for session in sessions {
        session.end_lost();
    }
    assert_eq!(psql(&proxy.url(), "SELECT 1").as_deref(), Ok("1"));
}

#[test]
fn what_hangs_arrives_later_or_is_cut() {
    let Some((server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut session = Session::connect(&proxy.url());
    proxy.hang();
    session.send("INSERT INTO t VALUES (1) RETURNING n");
    let mut other = Session::begin(&proxy.url());
    other.send("SELECT 'on a new connection'");
    assert!(session.is_silent());
    assert!(other.is_silent());
    assert_eq!(server.execute("SELECT count(*) FROM t"), "0");
    proxy.resume();
    assert_eq!(session.answer(), "1");
    assert_eq!(other.answer(), "on a new connection");

    proxy.hang();
    session.send("INSERT INTO t VALUES (2)");
    assert!(session.is_silent());
    proxy.cut();
    session.end_lost();
    proxy.resume();
    assert_eq!(server.execute("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_server_that_is_away_shows_as_a_connection_that_is_closed() {
    let Some((mut server, proxy)) = server_and_proxy() else {
        return;
    };
    server.stop();
    let said = psql(&proxy.url(), "SELECT 1").unwrap_err();
    assert!(
        said.contains("closed the connection unexpectedly"),
        "{said}"
    );
    server.restart();
    assert_eq!(psql(&proxy.url(), "SELECT 1").as_deref(), Ok("1"));
}

#[test]
fn new_connections_are_refused_and_those_that_are_open_stay() {
    let Some((_server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut session = Session::connect(&proxy.url());
    proxy.refuse();
    let said = psql(&proxy.url(), "SELECT 1").unwrap_err();
    assert!(said.contains("Connection refused"), "{said}");
    assert_eq!(session.ask("SELECT 'still here'"), "still here");
    proxy.resume();
    assert_eq!(psql(&proxy.url(), "SELECT 1").as_deref(), Ok("1"));
    assert_eq!(session.ask("SELECT 'still here'"), "still here");
    assert_eq!((proxy.connections(), proxy.cuts()), (2, 0));
}

#[test]
fn that_the_server_is_gone_does_not_arrive_while_everything_hangs() {
    let Some((mut server, proxy)) = server_and_proxy() else {
        return;
    };
    let mut session = Session::connect(&proxy.url());
    proxy.hang();
    server.kill();
    session.send("SELECT 1");
    assert!(session.is_silent());
    assert_eq!(proxy.open_connections(), 1);
    proxy.resume();
    session.end_lost();
}
