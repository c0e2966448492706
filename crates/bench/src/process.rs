//! What the operating system has counted of this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::machine::field;
use crate::stats::float;

/// The processor time that all threads have used, those that have ended included.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime)
        .try_into()
        .unwrap_or_default()
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
