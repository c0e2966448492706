//! A panic anywhere ends the process.
//!
//! A process whose clock or writer thread has died would seem alive and fire nothing. Ending it is
//! safe at any instant: what was not marked fires again after the next start.

use std::io::Write;

/// Lets a panic in any thread end the process with exit code 1.
pub(crate) fn end_the_process() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string);
        let location = location.unwrap_or_else(|| "an unknown location".to_owned());
        let what = panic
            .payload_as_str()
            .unwrap_or("a panic without a message");
        // Not `eprintln!`, which would panic in turn if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "error: this is a bug in timer-service, which ends now and loses no timer: {what} (at {location})"
        );
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Set for the copy of this test that is meant to die.
    const DIES: &str = "PUNCTUAL_TEST_PANICS";

    #[test]
    fn a_panic_in_any_thread_ends_the_process() {
        if std::env::var_os(DIES).is_some() {
            super::end_the_process();
            let _ = std::thread::spawn(|| panic!("the thread has died")).join();
            // Reached only if the panic did not end the process, and then it ends with 0.
            return;
        }
        let me = std::env::current_exe().unwrap();
        let name = "panics::tests::a_panic_in_any_thread_ends_the_process";
        let ended = Command::new(me)
            .args([name, "--exact", "--nocapture"])
            .env(DIES, "1")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("the thread has died"), "{said}");
    }
}
