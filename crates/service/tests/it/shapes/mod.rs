//! One end-to-end suite for every way to deploy the service: whatever runs where, a caller sees the same.

mod cases;

use std::process::Command;

use crate::api_client::{Api, calls_command, serve_calls};
use crate::broker::Broker;
use crate::postgres::Database;
use crate::running::{Home, Running};

/// A deployment of the service. Its processes are killed when it is dropped.
pub(crate) struct Shape {
    /// Where calls are submitted and read, each equal to the others.
    apis: Vec<Api>,
    processes: Vec<Running>,
    _databases: Vec<Database>,
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
        Self::of(vec![serving], Vec::new(), home)
    }

    /// The same, with the timers in a file of their own.
    fn timers_in_a_file_of_their_own() -> Self {
        let home = Home::new();
        let mut command = calls_command(&home);
        let serving = serve_calls(command.env("TIMER_DB_PATH", home.path("timer.db")));
        Self::of(vec![serving], Vec::new(), home)
    }

    /// Equal instances on one PostgreSQL database, without a broker.
    fn three_instances_on_postgres() -> Option<Self> {
        let database = Database::shared()?;
        let instance = |_| serve_calls(&mut every_module(&database));
        let instances = (0..3).map(instance).collect();
        Some(Self::of(instances, vec![database], Home::new()))
    }

    /// Each module in a process with a file of its own, and a broker between them.
    fn three_processes_on_files() -> Option<Self> {
        let (broker, home) = (Broker::shared()?, Home::new());
        let modules = |modules| module_on_files(&broker, &home, modules);
        let calls = serve_calls(&mut modules("api,orchestration"));
        let others = ["timer", "execution"].map(|it| serve_module(&mut modules(it)));
        let mut shape = Self::of(vec![calls], Vec::new(), home);
        shape.processes.extend(others);
        Some(shape)
    }

    /// The same with a schema each on PostgreSQL, where a module may have several instances; and calls are also
    /// submitted to a process that does nothing else.
    fn processes_apart_on_postgres() -> Option<Self> {
        let broker = Broker::shared()?;
        let [calls, timers, attempts] = [
            Database::shared()?,
            Database::shared()?,
            Database::shared()?,
        ];
        let module = |database, modules| module_on_postgres(&broker, database, modules);
        let apis = ["api,orchestration", "api"].map(|it| serve_calls(&mut module(&calls, it)));
        let others = [
            serve_module(&mut module(&timers, "timer")),
            serve_module(&mut module(&attempts, "execution")),
            serve_module(&mut module(&attempts, "execution")),
        ];
        let databases = vec![calls, timers, attempts];
        let mut shape = Self::of(apis.into(), databases, Home::new());
        shape.processes.extend(others);
        Some(shape)
    }

    /// Equal instances on one PostgreSQL database, with a broker between their modules.
    fn two_instances_on_postgres_with_a_broker() -> Option<Self> {
        let (broker, database) = (Broker::shared()?, Database::shared()?);
        let every = "api,orchestration,timer,execution";
        let instance = |_| serve_calls(&mut module_on_postgres(&broker, &database, every));
        let instances = (0..2).map(instance).collect();
        Some(Self::of(instances, vec![database], Home::new()))
    }

    fn of(serving: Vec<(Running, Api)>, databases: Vec<Database>, home: Home) -> Self {
        let (processes, apis) = serving.into_iter().unzip();
        Self {
            apis,
            processes,
            _databases: databases,
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

const SERVE: &str = "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8";

/// These modules on files of their own, with a broker to the others.
pub(crate) fn module_on_files(broker: &Broker, home: &Home, modules: &str) -> Command {
    let mut command = broker.command(home, SERVE);
    command
        .env("MODULES", modules)
        .env("DB_PATH", home.path("calls.db"))
        .env("EXECUTION_DB_PATH", home.path("execution.db"));
    if modules.contains("orchestration") {
        command.env_remove("TIMER_DB_PATH");
    }
    command
}

/// These modules in a schema of their own.
fn module_on_postgres(broker: &Broker, database: &Database, modules: &str) -> Command {
    let mut command = database.command(SERVE);
    broker.set(&mut command);
    command.env("MODULES", modules);
    command
}

/// Starts modules without an API.
pub(crate) fn serve_module(command: &mut Command) -> Running {
    let mut serving = Running::start(command);
    serving.wait_until_it_says("\"serving ");
    serving
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
    one_file, timers_in_a_file_of_their_own, three_instances_on_postgres,
    three_processes_on_files, processes_apart_on_postgres, two_instances_on_postgres_with_a_broker;
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
