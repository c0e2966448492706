//! One server's process: started, waited for through its log, signalled and ended.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::log::{Log, Silence};

/// A server that has said it is ready. It stays in the process group of the test, so that a test
/// runner that ends the test ends it too.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: Log,
}

impl Process {
    /// Starts the program and waits for a line with the words `ready` on its standard error;
    /// otherwise what it said.
    pub(crate) fn launch(
        command: &mut Command,
        name: &'static str,
        ready: &str,
    ) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let log = Log::of(child.stderr.take().unwrap());
        let mut process = Self { name, child, log };
        match process.log.wait_for(ready) {
            Ok(()) => Ok(process),
            Err(Silence::Ended) => Err(process.give_up("it has ended")),
            Err(Silence::Hangs) => Err(process.give_up("it says nothing more")),
        }
    }

    /// Ends it; what it said last, and why it was given up.
    pub(crate) fn give_up(mut self, why: &str) -> String {
        self.end(Signal::KILL);
        format!("{}\n{why}", self.log.tail())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the server can be signalled");
    }

    /// SIGSTOP. Returns when all its threads stand still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("the server can be waited for");
    }

    /// Sends the signal and waits for the end.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.wait_for_end(&format!("{signal:?}"));
    }

    /// Waits for the end, which shows in the log: that wait is bounded. A log is closed when the
    /// last process has closed it that inherited it, so no child of the server is left either.
    pub(crate) fn wait_for_end(&mut self, signal: &str) {
        let has_ended = self.log.wait_for_end();
        if !has_ended {
            self.signal(Signal::KILL);
        }
        self.child.wait().expect("the server can be waited for");
        // Not during a panic: a second one would hide the first.
        assert!(
            has_ended || std::thread::panicking(),
            "{} did not end on {signal}:\n{}",
            self.name,
            self.log.tail()
        );
    }
}
