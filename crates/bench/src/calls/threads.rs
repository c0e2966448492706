//! How long threads were on a processor, by their names.

use std::fs;
use std::time::Duration;

/// What all living threads of this process, whose name begins so, have had of the processors.
pub(super) fn on_a_processor(name: &str) -> Duration {
    let threads = fs::read_dir("/proc/self/task");
    let folders = threads.into_iter().flatten().flatten();
    let named = folders.filter(|folder| {
        let own = fs::read_to_string(folder.path().join("comm"));
        own.is_ok_and(|own| own.starts_with(name))
    });
    named
        .filter_map(|folder| {
            let times = fs::read_to_string(folder.path().join("schedstat")).ok()?;
            let ran = times.split_whitespace().next()?.parse().ok()?;
            Some(Duration::from_nanos(ran))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

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
