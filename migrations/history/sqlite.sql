CREATE TABLE punctual_migrations (
    -- One row for each migration that this file has been through, written in its transaction.
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    -- SHA-256 of the migration's text, in hexadecimal.
    checksum TEXT NOT NULL,
    -- Which set of tables the file has; the same in every row.
    set_name TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    app_version TEXT NOT NULL
) STRICT;
