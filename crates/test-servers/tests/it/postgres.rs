//! The private PostgreSQL, as tests of other crates use it; spoken to with `psql`.

use std::net::TcpStream;
use std::path::Path;

use punctual_test_servers::{PostgresServer, psql};

use crate::session::Session;

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn it_answers_and_is_durable() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let url = format!("postgres://punctual@127.0.0.1:{}/postgres", server.port());
    assert_eq!(server.url(), url);
    assert!(server.data_dir().join("PG_VERSION").exists());
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(
            server.execute(&format!("SHOW {setting}")),
            "on",
            "{setting}"
        );
    }
}

#[test]
fn more_settings_take_the_place_of_what_is_there_and_stay() {
    let settings = [("max_connections", "7"), ("synchronous_commit", "off")];
    let Some(mut server) = PostgresServer::start_with(&settings) else {
        return;
    };
    assert_eq!(server.execute("SHOW max_connections"), "7");
    assert_eq!(server.execute("SHOW synchronous_commit"), "off");
    server.set("work_mem", "3MB");
    server.restart();
    assert_eq!(server.execute("SHOW max_connections"), "7");
    assert_eq!(server.execute("SHOW work_mem"), "3MB");
}

#[test]
fn what_was_committed_is_there_after_a_kill_and_what_was_not_is_gone() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1);");
    let mut session = Session::connect(&server.url());
    assert_eq!(
        session.ask("BEGIN; INSERT INTO t VALUES (2) RETURNING n"),
        "2"
    );
    let (port, pids) = (server.port(), server.pids());
    // The first, its six assistants or so, and one for the session.
    assert!(pids.len() > 2, "{pids:?}");

    server.kill();
    assert!(!server.is_running());
    assert_eq!(pids.into_iter().find(|pid| is_alive(*pid)), None);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());

    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.execute("SELECT n FROM t"), "1");
    session.send("SELECT 1");
    session.end_lost();
}

#[test]
fn a_stop_ends_connections_and_is_no_crash() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE UNLOGGED TABLE t (n int); INSERT INTO t VALUES (1);");
    let _open = Session::connect(&server.url());
    let pids = server.pids();
    server.stop();
    assert_eq!(pids.into_iter().find(|pid| is_alive(*pid)), None);
    server.restart();
    // After a crash such a table is emptied.
    assert_eq!(server.execute("SELECT n FROM t"), "1");
    server.kill();
    server.restart();
    assert_eq!(server.execute("SELECT n FROM t"), "");
}

#[test]
fn a_paused_one_is_silent_and_goes_on_where_it_was() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let mut session = Session::connect(&server.url());
    server.pause();
    session.send("SELECT 'on an open connection'");
    let mut other = Session::begin(&server.url());
    other.send("SELECT 'on a new one'");
    assert!(session.is_silent());
    assert!(other.is_silent());
    assert!(server.is_running());
    server.resume();
    assert_eq!(session.answer(), "on an open connection");
    assert_eq!(other.answer(), "on a new one");
}

#[test]
fn a_paused_one_can_be_killed_and_does_nothing_more() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE TABLE t (n int)");
    let mut session = Session::connect(&server.url());
    server.pause();
    session.send("INSERT INTO t VALUES (1)");
    assert!(session.is_silent());
    server.kill();
    server.restart();
    assert_eq!(server.execute("SELECT count(*) FROM t"), "0");
}

#[test]
fn nothing_is_left_when_it_is_dropped() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let _open = Session::connect(&server.url());
    let (pids, data) = (server.pids(), server.data_dir());
    server.pause();
    drop(server);
    assert_eq!(pids.into_iter().find(|pid| is_alive(*pid)), None);
    assert!(!data.parent().unwrap().exists());
}

#[test]
fn passwords_and_wrong_users_are_checked_once_it_is_told_to() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE ROLE limited LOGIN PASSWORD 'sesame'");
    let ask =
        |server: &PostgresServer, user: &str| psql(&server.url_as(user), "SELECT current_user");
    assert_eq!(ask(&server, "limited").as_deref(), Ok("limited"));
    server.set_hba("host all punctual 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256");
    assert_eq!(ask(&server, "limited:sesame").as_deref(), Ok("limited"));
    for user in ["limited", "limited:wrong", "nobody:sesame"] {
        let refused = ask(&server, user).unwrap_err();
        assert!(refused.contains("password"), "{user}: {refused}");
    }
    assert_eq!(ask(&server, "punctual").as_deref(), Ok("punctual"));
    let denied = psql(&server.url_as("limited:sesame"), "CREATE ROLE another").unwrap_err();
    assert!(denied.contains("permission denied"), "{denied}");
}

#[test]
#[should_panic(expected = "does not understand `nonsense`")]
fn lines_about_access_that_it_does_not_understand_are_no_secret() {
    let Some(mut server) = PostgresServer::start() else {
        panic!("PostgreSQL, which is not there, does not understand `nonsense`");
    };
    server.set_hba("nonsense");
}

#[test]
#[should_panic(expected = "unrecognized configuration parameter")]
fn a_setting_that_does_not_exist_is_told_with_what_the_server_said() {
    let server = PostgresServer::start_with(&[("no_such_setting", "1")]);
    assert!(
        server.is_some(),
        "PostgreSQL is not there: unrecognized configuration parameter"
    );
}
