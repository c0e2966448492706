//! The processes that a server has started, which are no children of ours: found and waited for
//! through `/proc`.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The children of a process, in no order.
pub(crate) fn of(parent: Pid) -> Vec<Pid> {
    fs::read_dir("/proc")
        .expect("there is a /proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| Stat::of(*pid).is_some_and(|stat| stat.parent == parent.as_raw_pid()))
        .collect()
}

/// Sends a signal to those that are still there.
pub(crate) fn signal(children: &[Pid], signal: Signal) {
    for pid in children {
        // One may have ended by itself.
        let _ = kill_process(*pid, signal);
    }
}

/// SIGSTOP. Returns when all of them stand still, or have ended.
pub(crate) fn pause(children: &[Pid]) {
    signal(children, Signal::STOP);
    for pid in children {
        while Stat::of(*pid).is_some_and(|stat| !stat.is_still()) {
            std::thread::yield_now();
        }
    }
}

/// What `/proc/PID/stat` says of a process.
struct Stat {
    state: char,
    parent: i32,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        // The name is in parentheses, and may hold some itself.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Stopped, or ended and only not waited for.
    fn is_still(&self) -> bool {
        matches!(self.state, 'T' | 'Z' | 'X')
    }
}
