//! Instances that start at the same moment.

use punctual_adapters_postgres::tokio_postgres::NoTls;
use punctual_adapters_postgres::{
    PostgresSettings, PostgresTimerStore, PostgresUrl, tokio_postgres,
};
use punctual_test_servers::SharedDatabase;

use crate::store::{machine_clock, new_instance};

/// The lock that migrations take.
const LOCK: i64 = 0x70_756e_6374_7561;

/// All have seen that there are no tables before the first creates them.
#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_created_once() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let url = database.url();
    let (holder, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = format!("SELECT pg_advisory_lock({LOCK})");
    holder.batch_execute(&lock).await.unwrap();
    let open = || async {
        let settings = PostgresSettings::timers(PostgresUrl::new(&url).unwrap());
        PostgresTimerStore::open(&settings, machine_clock(), new_instance()).await
    };
    let let_go = async {
        let waiting = "SELECT 1 FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event = 'advisory'";
        while holder.query_typed(waiting, &[]).await.unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        let unlock = format!("SELECT pg_advisory_unlock({LOCK})");
        holder.batch_execute(&unlock).await.unwrap();
    };
    let (one, two, three, ()) = tokio::join!(open(), open(), open(), let_go);
    for opened in [one, two, three] {
        opened.unwrap().close().await;
    }
}
