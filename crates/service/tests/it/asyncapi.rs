//! `docs/asyncapi.yaml` is for tools, so a tool reads it: a small program in Python that holds it
//! against the examples of `docs/messages.md`.

use std::path::Path;
use std::process::Command;

use punctual_test_servers::shared_python;

#[test]
fn the_schemas_for_tools_agree_with_the_examples_for_people() {
    let Some(python) = shared_python() else {
        return;
    };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let check = docs.join("check_asyncapi.py");
    let output = Command::new(python).arg(check).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
