//! Several instances of the service on one PostgreSQL, and whoever schedules beside them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use punctual_test_servers::{PgBouncer, PostgresServer, Proxy, psql};
use rustix::process::Signal;

use crate::running::{Ended, Home, Running};

/// How far the clock of one instance is from the machine's.
const CLOCK_SHIFTS: [&str; 2] = ["+3s", "-3s"];

/// Where Debian's package `faketime` puts what shifts the clock of a process.
const SHIFTERS: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// The server, and what stands in front of it.
pub(crate) struct Database {
    pub(crate) server: PostgresServer,
    pub(crate) pooler: Option<PgBouncer>,
    pub(crate) proxy: Proxy,
}

impl Database {
    /// `None` where there is no PostgreSQL, or no PgBouncer if it is to be in front.
    pub(crate) fn start(is_pooled: bool, settings: &[(&str, &str)]) -> Option<Self> {
        let server = PostgresServer::start_with(settings)?;
        let pooler = if is_pooled {
            // By default it tries a server that was away again after fifteen seconds.
            let settings = [("server_login_retry", "1")];
            Some(PgBouncer::start_with(&server.url(), &settings)?)
        } else {
            None
        };
        let proxy = Proxy::start(&pooler.as_ref().map_or_else(|| server.url(), PgBouncer::url));
        Some(Self {
            server,
            pooler,
            proxy,
        })
    }

    fn url(&self) -> String {
        let pooler = self.pooler.as_ref();
        pooler.map_or_else(|| self.server.url(), PgBouncer::url)
    }

    /// A command on this database, through the proxy or past it.
    pub(crate) fn command(&self, home: &Home, line: &str, is_cut: bool) -> Command {
        let mut command = home.command(line);
        let url = if is_cut { self.proxy.url() } else { self.url() };
        command.env_remove("TIMER_DB_PATH").env("DATABASE_URL", url);
        if self.pooler.is_some() && !is_cut {
            // Those without it poll.
            command.env("DATABASE_LISTEN_URL", self.server.url());
        }
        command
    }

    /// Ends all connections on which notifications arrive.
    pub(crate) fn end_listeners(&self) -> usize {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE application_name LIKE '%listen%'";
        let ended = psql(&self.server.url(), end).unwrap_or_default();
        ended.lines().filter(|line| *line == "t").count()
    }

    pub(crate) fn answers(&self) -> bool {
        psql(&self.server.url(), "SELECT 1").is_ok()
    }
}

/// One that serves, and is started again whenever it ends.
pub(crate) struct Instance {
    number: usize,
    starts: usize,
    pub(crate) process: Option<Running>,
    pub(crate) is_suspended: bool,
}

impl Instance {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            starts: 0,
            process: None,
            is_suspended: false,
        }
    }

    /// Starts it, to fire timers.
    pub(crate) fn start(&mut self, home: &Home, database: &Database, has_faults: bool) {
        self.start_as(home, database, "serve", |_| (), has_faults);
    }

    /// Starts it: the second behind the proxy that cuts connections, the third with a clock that is wrong.
    pub(crate) fn start_as(
        &mut self,
        home: &Home,
        database: &Database,
        line: &str,
        set: impl FnOnce(&mut Command),
        has_faults: bool,
    ) {
        let mut command = database.command(home, line, has_faults && self.number == 1);
        set(&mut command);
        if has_faults
            && self.number == 2
            && let Some(shifter) = shifter()
        {
            let shift = CLOCK_SHIFTS[self.starts % CLOCK_SHIFTS.len()];
            command
                .env("LD_PRELOAD", shifter)
                .env("FAKETIME", shift)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("FAKETIME_NO_CACHE", "1");
        }
        self.starts += 1;
        self.process = Some(Running::start(&mut command));
    }

    /// Suspends it: it does not notice that time passes.
    pub(crate) fn suspend(&mut self) {
        if let Some(process) = &self.process {
            process.signal(Signal::STOP);
            self.is_suspended = true;
        }
    }

    pub(crate) fn resume(&mut self) {
        if let (Some(process), true) = (&self.process, self.is_suspended) {
            process.signal(Signal::CONT);
        }
        self.is_suspended = false;
    }
}

/// What shifts the clock of a process, if it is installed.
pub(crate) fn shifter() -> Option<&'static str> {
    SHIFTERS.into_iter().find(|path| Path::new(path).is_file())
}

/// A process that schedules what it is told, and acknowledges it. It is told by a thread: while the database
/// is away it reads nothing.
pub(crate) struct Feeder {
    pub(crate) process: Running,
    lines: Option<Sender<String>>,
    writer: Option<JoinHandle<()>>,
}

impl Feeder {
    pub(crate) fn start(home: &Home, database: &Database, is_cut: bool) -> Self {
        let mut command = database.command(home, "schedule --batch -", is_cut);
        let mut process = Running::start(command.stdin(Stdio::piped()));
        let mut stdin = process.take_stdin();
        let (lines, told) = channel::<String>();
        let writer = std::thread::spawn(move || {
            while let Ok(line) = told.recv() {
                if writeln!(stdin, "{line}").is_err() {
                    return;
                }
            }
        });
        Self {
            process,
            lines: Some(lines),
            writer: Some(writer),
        }
    }

    pub(crate) fn schedule(&self, line: String) {
        // One that was killed is told nothing.
        if let Some(lines) = &self.lines {
            let _ = lines.send(line);
        }
    }

    /// Tells it that this was all.
    pub(crate) fn finish(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Why an instance has ended, which nobody had told it to.
pub(crate) fn last_words(ended: &Ended) -> String {
    let last = ended.stderr.lines().rev().take(3);
    let last: Vec<_> = last.collect();
    format!("{:?}: {}", ended.code, last.join(" / "))
}

/// A file that takes all the room that is left on a disk.
pub(crate) struct Filler(PathBuf);

impl Filler {
    pub(crate) fn on(disk: &Path) -> Self {
        Self(disk.join("filler"))
    }

    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(&self.0).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    pub(crate) fn remove(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}
