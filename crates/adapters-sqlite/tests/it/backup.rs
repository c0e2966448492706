//! Backup of a file that is in use.

use punctual_adapters_sqlite::{SchemaSet, SqliteSettings, SqliteTimerStore};
use punctual_domain::{TenantId, Timestamp};
use punctual_ports::{PortErrorKind, TimerPageQuery, TimerPersistencePort};

use crate::store::{OnFile, folder, save_some};

async fn count(store: &SqliteTimerStore) -> usize {
    let query = TimerPageQuery {
        tenant_id: TenantId::default(),
        state: None,
        after: None,
        limit: 100_000,
    };
    store.page(query).await.unwrap().timers.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_complete_and_opens() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..2_000).await;
    let store = file.store.clone();
    let load = tokio::spawn(async move {
        for batch in 20..60 {
            save_some(&store, batch * 100..(batch + 1) * 100).await;
        }
    });
    let target = folder();
    let copy = target.path().join("copy.db");
    file.store.backup_to(&copy).await.unwrap();
    load.await.unwrap();

    let copied = SqliteTimerStore::open(&SqliteSettings::timers(&copy), Timestamp::MIN).unwrap();
    let found = count(&copied).await;
    assert!((2_000..=6_000).contains(&found), "{found}");
    assert_eq!(
        found % 100,
        0,
        "a transaction is there completely or not at all"
    );
    assert_eq!(count(&file.store).await, 6_000);
    assert_eq!(
        std::fs::read_dir(target.path())
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .contains("partial")
            })
            .count(),
        0
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_has_the_permissions_of_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let file = OnFile::new(SchemaSet::TimersOnly);
    for mode in [0o600, 0o640] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.store.path(), permissions).unwrap();
        let target = folder();
        let copy = target.path().join("copy.db");
        file.store.backup_to(&copy).await.unwrap();
        let found = std::fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode);
    }
}

#[tokio::test]
async fn a_backup_replaces_no_file() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..10).await;
    let target = folder();
    let copy = target.path().join("mine.txt");
    std::fs::write(&copy, "precious").unwrap();
    let refused = file.store.backup_to(&copy).await.unwrap_err();
    assert_eq!(refused.kind(), PortErrorKind::Rejected);
    assert!(refused.to_string().contains("exists already"), "{refused}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "precious");
    let nowhere = target.path().join("no/such/folder/copy.db");
    assert!(file.store.backup_to(nowhere).await.is_err());
}
