//! One end-to-end suite for every way to deploy the service: whatever runs where, a caller sees the same.

mod cases;

use std::process::Command;

use crate::api_client::{Api, calls_command, serve_calls};
use crate::postgres::Database;
use crate::running::{Home, Running};

/// A deployment of the service. Its processes are killed when it is dropped.
pub(crate) struct Shape {
    /// Where calls are submitted and read, each equal to the others.
    apis: Vec<Api>,
    _processes: Vec<Running>,
    _database: Option<Database>,
    _home: Home,
}

impl Shape {
    /// The interface whose turn it is: whoever asks one after the other asks different processes.
    fn api(&self, turn: usize) -> Api {
        self.apis[turn % self.apis.len()]
    }

    /// All modules in one process, on one file.
    fn one_file() -> Self {
        let home = Home::new();
        let serving = serve_calls(&mut calls_command(&home));
        Self::of(vec![serving], None, home)
    }

    /// The same, with the timers in a file of their own.
    fn timers_in_a_file_of_their_own() -> Self {
        let home = Home::new();
        let mut command = calls_command(&home);
        let serving = serve_calls(command.env("TIMER_DB_PATH", home.path("timer.db")));
        Self::of(vec![serving], None, home)
    }

    /// Equal instances on one PostgreSQL database, without a broker.
    fn three_instances_on_postgres() -> Option<Self> {
        let database = Database::shared()?;
        let instance = |_| serve_calls(&mut every_module(&database));
        let instances = (0..3).map(instance).collect();
        Some(Self::of(instances, Some(database), Home::new()))
    }

    fn of(serving: Vec<(Running, Api)>, database: Option<Database>, home: Home) -> Self {
        let (processes, apis) = serving.into_iter().unzip();
        Self {
            apis,
            _processes: processes,
            _database: database,
            _home: home,
        }
    }
}

/// An instance with all modules.
pub(crate) fn every_module(database: &Database) -> Command {
    let mut command = database.command("serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command.env_remove("MODULES");
    command
}

/// A case on a shape, unless its servers are missing.
fn on(shape: impl Into<Option<Shape>>, case: fn(&Shape)) {
    if let Some(shape) = shape.into() {
        case(&shape);
    }
}

/// Each case on each shape.
macro_rules! suite {
    ($($shape:ident: $cases:tt;)*) => {
        $(mod $shape {
            suite!(@cases $shape $cases);
        })*
    };
    (@cases $shape:ident [$($case:ident,)*]) => {
        $(#[test]
        fn $case() {
            super::on(super::Shape::$shape(), super::cases::$case);
        })*
    };
    ($($shape:ident),*; $cases:tt) => {
        suite! { $($shape: $cases;)* }
    };
}

suite! {
    one_file, timers_in_a_file_of_their_own, three_instances_on_postgres;
    [
        a_call_is_made_once_and_not_before_it_is_due,
        a_call_that_fails_says_why,
        a_deleted_call_is_never_made,
        a_request_is_traced_from_its_submission_to_its_outcome,
        calls_are_found_by_tags_and_status,
        tenants_do_not_see_each_other,
        a_repeated_submission_is_the_same_call,
    ]
}
