//! A `psql` that stays open, for what happens to a connection while it is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing has to come for a server to count as silent.
const SILENCE: Duration = Duration::from_millis(200);

/// Statements are sent one by one, as they are given.
pub(crate) struct Session {
    child: Child,
    input: Option<ChildStdin>,
    rows: Receiver<String>,
}

impl Session {
    /// A connection that has answered once.
    pub(crate) fn connect(url: &str) -> Self {
        let mut session = Self::begin(url);
        assert_eq!(session.ask("SELECT 'hello'"), "hello");
        session
    }

    /// A connection that nobody may have accepted yet.
    pub(crate) fn begin(url: &str) -> Self {
        let mut child = Command::new("psql")
            .args(["-X", "-q", "-w", "-At", "-v", "ON_ERROR_STOP=1", "-d", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, rows) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                let _ = sender.send(line.unwrap());
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            rows,
        }
    }

    /// Sends a statement, and does not wait for an answer.
    pub(crate) fn send(&mut self, statement: &str) {
        writeln!(self.input.as_mut().unwrap(), "{statement};").unwrap();
    }

    /// The next row.
    pub(crate) fn answer(&mut self) -> String {
        self.rows.recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn ask(&mut self, statement: &str) -> String {
        self.send(statement);
        self.answer()
    }

    /// Whether nothing comes for a while, with the connection open.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.rows.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout)
    }

    /// No more statements; the last one has found the connection lost. Only these words are certain: what
    /// the server says as it ends arrives or not, and `psql` may notice before it is asked.
    pub(crate) fn end_lost(mut self) {
        drop(self.input.take());
        let mut said = String::new();
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        assert!(said.contains("connection to server was lost"), "{said}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
