//! Places of one test's own on the shared PostgreSQL: apart while they are there, gone afterwards.

use punctual_test_servers::{SharedDatabase, SharedSchema, psql, shared_postgres_url};

use crate::session::Session;

/// What the shared server answers.
fn ask(statement: &str) -> String {
    psql(&shared_postgres_url().unwrap(), statement).unwrap()
}

#[test]
fn databases_are_apart_and_gone_afterwards_although_somebody_is_connected() {
    let (Some(one), Some(two)) = (SharedDatabase::create(), SharedDatabase::create()) else {
        return;
    };
    let made = psql(
        &one.url(),
        "CREATE TABLE t (n int); SELECT current_database()",
    );
    assert_eq!(made.as_deref(), Ok(one.name()));
    assert!(psql(&two.url(), "SELECT * FROM t").is_err());

    let count = format!(
        "SELECT count(*) FROM pg_database WHERE datname = '{}'",
        one.name()
    );
    let mut session = Session::connect(&one.url());
    assert_eq!(ask(&count), "1");
    drop(one);
    assert_eq!(ask(&count), "0");
    session.send("SELECT 1");
    session.end_lost();
}

#[test]
fn schemas_are_apart_and_gone_afterwards_with_what_is_in_them() {
    let (Some(one), Some(two)) = (SharedSchema::create(), SharedSchema::create()) else {
        return;
    };
    assert_eq!(Some(one.url().to_owned()), shared_postgres_url());
    for schema in [&one, &two] {
        psql(
            schema.url(),
            &format!("CREATE TABLE {}.t (n int)", schema.name()),
        )
        .unwrap();
    }
    let count = |schema: &str| {
        ask(&format!(
            "SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'"
        ))
    };
    let name = one.name().to_owned();
    assert_eq!(count(&name), "1");
    drop(one);
    assert_eq!(count(&name), "0");
    assert_eq!(count(two.name()), "1");
}
