//! The private PgBouncer: it pools transactions, and so sessions get lost.

use std::net::TcpStream;

use punctual_test_servers::{PgBouncer, PostgresServer, psql};

use crate::session::Session;

#[test]
fn two_clients_share_one_connection_between_transactions() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let Some(pooler) = PgBouncer::start_with(&server.url(), &[("default_pool_size", "1")]) else {
        return;
    };
    let (mut one, mut two) = (
        Session::connect(&pooler.url()),
        Session::connect(&pooler.url()),
    );
    let pid = one.ask("SELECT pg_backend_pid()");
    assert_eq!(two.ask("SELECT pg_backend_pid()"), pid);
    // What one sets for its session is the other's: this is transaction mode.
    one.send("SET application_name = 'of one'");
    assert_eq!(one.ask("SELECT 'done'"), "done");
    assert_eq!(two.ask("SHOW work_mem"), "4MB");
    one.send("SET work_mem = '5MB'");
    assert_eq!(one.ask("SELECT 'done'"), "done");
    assert_eq!(two.ask("SHOW work_mem"), "5MB");
    // And within a transaction the connection is nobody else's.
    assert_eq!(one.ask("BEGIN; SELECT 'begun'"), "begun");
    two.send("SELECT 'at last'");
    assert!(two.is_silent());
    one.send("COMMIT");
    assert_eq!(two.answer(), "at last");
}

#[test]
fn it_can_be_killed_and_comes_back_at_the_same_place() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let Some(mut pooler) = PgBouncer::start(&server.url()) else {
        return;
    };
    assert_eq!(
        psql(&pooler.url(), "SHOW max_connections").as_deref(),
        Ok("100")
    );
    let port = pooler.port();
    pooler.kill();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    pooler.restart();
    assert_eq!(psql(&pooler.url(), "SELECT 1").as_deref(), Ok("1"));
    drop(pooler);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
