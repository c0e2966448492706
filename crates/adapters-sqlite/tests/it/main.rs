//! The SQLite adapter, on real files.

mod migrations;
