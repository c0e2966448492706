//! On what it ran: a figure without its machine says nothing.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::stats::float;

/// The facts of a machine that decide about the figures.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    pub(crate) sqlite: &'static str,
}

impl Machine {
    /// Reads the properties of this machine; those that cannot be read are `unknown`.
    pub(crate) fn read(folder: &Path) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: field("/proc/cpuinfo", "model name"),
            memory: field("/proc/meminfo", "MemTotal"),
            kernel: one_line("/proc/sys/kernel/osrelease"),
            filesystem: filesystem(folder),
            sqlite: rusqlite::version(),
        }
    }

    /// Whether what is written here is not on a disk at all.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.filesystem.starts_with("tmpfs") || self.filesystem.starts_with("ramfs")
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "memory": self.memory,
            "kernel": self.kernel,
            "filesystem": self.filesystem,
            "sqlite": self.sqlite,
        })
    }
}

/// How much else goes on: the load average of the last minute.
pub(crate) fn load() -> String {
    let line = one_line("/proc/loadavg");
    line.split(' ').next().unwrap_or("unknown").to_owned()
}

fn one_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_owned());
    text.trim().to_owned()
}

/// What follows a name and a colon in a file of the system.
pub(crate) fn field(path: impl AsRef<Path>, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(
        || "unknown".to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}

/// The type and device of the mount with the longest path above the folder.
fn filesystem(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, place, kind) = (words.next()?, words.next()?, words.next()?);
        let is_above = folder.starts_with(place);
        is_above.then(|| (place.len(), format!("{kind} on {device}")))
    });
    let nearest = above.max_by_key(|(length, _)| *length);
    nearest.map_or_else(|| "unknown".to_owned(), |(_, name)| name)
}

/// What the processors have done so far, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    total: u64,
    busy: u64,
    ours: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = stat.lines().next().unwrap_or_default();
        let ticks = numbers(all, 1, 8);
        let total = ticks.iter().sum();
        // The fourth and fifth are idle, and idle while something waits for a disk.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // After the name, which may hold anything: user, system, and both of children that ended.
        let own = own.rsplit(')').next().unwrap_or_default();
        Self {
            total,
            busy: total - idle,
            ours: numbers(own, 11, 4).iter().sum(),
        }
    }

    /// Which part of the machine others have used since then; between nothing and all.
    pub(crate) fn others_since(self, then: Self) -> f64 {
        let others = (self.busy - then.busy).saturating_sub(self.ours - then.ours);
        let total = (self.total - then.total).max(1);
        (float(others) / float(total)).clamp(0.0, 1.0)
    }
}

/// Some words of a text as numbers.
fn numbers(text: &str, skip: usize, take: usize) -> Vec<u64> {
    let words = text.split_whitespace().skip(skip).take(take);
    words.map(|word| word.parse().unwrap_or(0)).collect()
}
