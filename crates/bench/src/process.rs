//! What the operating system has counted of this process.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::stats::float;

/// The processor time that all threads have used, those that have ended included.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The most memory that was resident at any time, in mebibytes.
pub(crate) fn peak_memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    mebibytes(field(&status, "VmHWM") * 1_024)
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

/// How often the threads that are there have waited for something so far.
pub(crate) fn waits() -> u64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    threads
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default())
        .map(|status| field(&status, "voluntary_ctxt_switches"))
        .sum()
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(name));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
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
}
