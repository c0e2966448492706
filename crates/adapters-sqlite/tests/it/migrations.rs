//! Files of every history, brought up to date or refused.

use punctual_adapters_sqlite::{SchemaSet, migrate, migration_status};

#[test]
fn a_second_run_changes_nothing() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for set in SchemaSet::ALL {
        let path = folder.path().join(set.name()).join("deep").join("a.db");
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let report = migrate(&path, set, now).unwrap();
        assert_eq!(report.applied_now, set.migrations().len());
        let later = "2026-01-02T00:00:00Z".parse().unwrap();
        let again = migrate(&path, set, later).unwrap();
        assert_eq!(again.applied_now, 0);
        assert_eq!(report.migrations, again.migrations);
        assert_eq!(migration_status(&path, set).unwrap().pending(), 0);
    }
}
