//! On what it ran, and what the operating system has counted of this process: a figure without its
//! machine says nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
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
fn field(path: impl AsRef<Path>, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    let value = value.map_or("unknown", |(_, value)| value.trim());
    value.to_owned()
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
        Self {
            total,
            busy: total - idle,
            ours: ticks_of(Path::new("/proc/self")),
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

/// The processor time that all threads of this process have used, those that have ended included.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// The processor time of a process, of the children that it has now, and of those that have ended, in whole
/// hundredths of a second.
pub(crate) fn processor_time_with_children(pid: u32) -> Duration {
    let own = ticks_of(Path::new(&format!("/proc/{pid}")));
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = all.map(|entry| entry.path()).filter(|entry| {
        let parent = after_name(entry).split_whitespace().nth(1).map(str::parse);
        parent == Some(Ok(pid))
    });
    // What the children have waited for is theirs, and not in the sums of their parent yet.
    let others: u64 = children.map(|entry| ticks_of(&entry)).sum();
    Duration::from_millis((own + others) * 10)
}

/// The same of this process, without the children that it has now.
pub(crate) fn processor_time_with_ended_children() -> Duration {
    Duration::from_millis(ticks_of(Path::new("/proc/self")) * 10)
}

/// User and system time in ticks, with those of children that have ended.
fn ticks_of(process: &Path) -> u64 {
    numbers(&after_name(process), 11, 4).iter().sum()
}

/// The state of a process after its name, which may hold anything.
fn after_name(process: &Path) -> String {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().to_owned()
}

/// The most memory that was resident at any time, in mebibytes.
pub(crate) fn peak_memory() -> f64 {
    mebibytes(number(Path::new("/proc/self/status"), "VmHWM") * 1_024)
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

/// How often the threads that are there have waited for something so far.
pub(crate) fn waits() -> u64 {
    let status = threads().map(|thread| thread.join("status"));
    status
        .map(|status| number(&status, "voluntary_ctxt_switches"))
        .sum()
}

/// How long all living threads whose name begins so have been on a processor.
pub(crate) fn on_a_processor(name: &str) -> Duration {
    let named = threads().filter(|thread| {
        let own = fs::read_to_string(thread.join("comm"));
        own.is_ok_and(|own| own.starts_with(name))
    });
    let times = named.filter_map(|thread| {
        let times = fs::read_to_string(thread.join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse().ok()
    });
    times.map(Duration::from_nanos).sum()
}

/// The folder of each thread that is there.
fn threads() -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir("/proc/self/task");
    let threads = threads.into_iter().flatten().flatten();
    threads.map(|thread| thread.path())
}

fn number(path: &Path, name: &str) -> u64 {
    let value = field(path, name);
    let word = value.split_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_memory_and_time() {
        assert!(peak_memory() > 0.1);
        assert!(processor_time() > Duration::ZERO);
    }

    #[test]
    fn a_thread_that_works_is_found_by_its_name() {
        let (work, wait) = std::sync::mpsc::channel::<()>();
        let (done, is_done) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("busy-one".to_owned());
        let thread = thread.spawn(move || {
            let sum: u64 = std::hint::black_box((0..1_000_000).sum());
            done.send(sum).unwrap();
            // Another thread reads its times while it lives.
            wait.recv().ok();
        });
        is_done.recv().unwrap();
        assert!(on_a_processor("busy-one") > Duration::ZERO);
        assert_eq!(on_a_processor("nobody"), Duration::ZERO);
        drop(work);
        thread.unwrap().join().unwrap();
    }
}
