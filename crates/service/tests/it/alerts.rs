//! The alerting rules of `deploy/`, by the program that reads them, and the names that they go by.

use std::path::Path;
use std::process::Command;

use punctual_test_servers::promtool;

fn run(arguments: &[&str]) {
    let Some(promtool) = promtool() else {
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let output = Command::new(promtool)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_rules_can_be_read() {
    run(&["check", "rules", "prometheus-rules.yml"]);
}

#[test]
fn each_alert_is_silent_while_all_is_well_and_not_after() {
    run(&["test", "rules", "prometheus-rules-test.yml"]);
}
