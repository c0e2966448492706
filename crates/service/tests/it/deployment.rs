//! The files of `deploy/systemd` and `deploy/container`: what they set exists, and what they start starts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use punctual_test_servers::shared_python;
use serde_json::Value;

use crate::running::{Home, Running, run};

fn deploy(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(deploy(path)).unwrap()
}

/// The lines of a unit with a key, without it.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    unit.lines().filter_map(value).collect()
}

/// Fails unless all these are variables of the service.
fn assert_known<'a>(variables: impl IntoIterator<Item = &'a str>) {
    let help = Home::new().run("--help").stdout;
    let known: BTreeSet<&str> = help
        .split(|c: char| !(c.is_ascii_uppercase() || c == '_'))
        .collect();
    let mut count = 0;
    for variable in variables {
        assert!(known.contains(variable), "{variable} is no setting");
        count += 1;
    }
    assert!(count > 0);
}

const UNITS: [&str; 2] = [
    "systemd/punctual.service",
    "systemd/punctual-postgres.service",
];

#[test]
fn a_unit_sets_what_exists_and_starts_the_service() {
    for unit in UNITS {
        let text = text(unit);
        assert_eq!(values(&text, "ExecStart"), ["/usr/local/bin/timer-service"]);
        let set = values(&text, "Environment").into_iter();
        assert_known(set.map(|it| it.split('=').next().unwrap()));
        let stop = values(&text, "TimeoutStopSec")[0].parse::<u32>().unwrap();
        assert!(stop > 25, "what is in flight has 25 seconds");
        let home = Home::new();
        let file = home.path("unit.service");
        let binary = env!("CARGO_BIN_EXE_timer-service");
        let there = text.replace("/usr/local/bin/timer-service", binary);
        std::fs::write(&file, there).unwrap();
        let Ok(verified) = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&file)
            .output()
        else {
            println!("skipped: {unit}: there is no systemd-analyze");
            continue;
        };
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(
            verified.status.success() && said.is_empty(),
            "{unit}: {said}"
        );
    }
}

/// As the image starts it: in a folder whose `data` is the volume.
#[test]
fn the_image_has_its_file_in_its_volume_and_the_compiler_of_the_project() {
    let image = text("container/Dockerfile");
    let toolchain = std::fs::read_to_string(deploy("../rust-toolchain.toml")).unwrap();
    let version = image.split("FROM rust:").nth(1).unwrap();
    let version = version.split('-').next().unwrap();
    assert!(toolchain.contains(&format!("\"{version}\"")), "{version}");
    assert!(image.contains("\nWORKDIR /\n") && image.contains("\nVOLUME /data\n"));
    assert!(
        !image.contains("\nENV"),
        "a file and DATABASE_URL exclude each other"
    );
    let home = Home::new();
    let mut command = home.command("serve --listen 127.0.0.1:0");
    command.env_remove("MODULES").env_remove("TIMER_DB_PATH");
    let mut serving = Running::start(&mut command);
    serving.wait_until_it_says("serving service calls");
    assert!(home.path("data/event_service.db").exists());
}

#[test]
fn the_composition_is_understood_and_sets_what_exists() {
    let Some(python) = shared_python() else {
        return;
    };
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let path = deploy("container/compose.yaml");
    let read = run(Command::new(python).arg("-c").arg(read).arg(path));
    assert_eq!(read.code, Some(0), "{read:?}");
    let composition: Value = serde_json::from_str(&read.stdout).unwrap();
    let service = &composition["services"]["punctual"];
    let set = service["environment"].as_object().unwrap();
    assert_known(set.keys().map(String::as_str));
    let secrets = composition["secrets"].as_object().unwrap();
    for secret in service["secrets"].as_array().unwrap() {
        assert!(secrets.contains_key(secret.as_str().unwrap()));
    }
    let build = &service["build"];
    assert!(
        deploy("container")
            .join(build["context"].as_str().unwrap())
            .join("Cargo.toml")
            .exists()
    );
    assert_eq!(build["dockerfile"], "deploy/container/Dockerfile");
    assert_eq!(service["stop_grace_period"], "40s");
}
