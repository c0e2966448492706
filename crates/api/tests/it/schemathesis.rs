//! A program that knows nothing of us but the document tries to break what it says.

use std::process::Command;
use std::sync::Arc;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_system::SystemClock;
use punctual_api::serve;
use punctual_test_servers::shared_python;

use crate::world::{NOW, World};

/// What has to hold for every answer. That every request which fits the schemas is taken
/// (`positive_data_acceptance`) is not among it: no schema says that a cursor is one we gave, that two
/// keys are equal, or that an instant in its zone is after 1970.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
response_headers_conformance,response_schema_conformance,negative_data_rejection,\
missing_required_header,unsupported_method,use_after_free,\
ensure_resource_availability,ignored_auth";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_nothing() {
    let Some(python) = shared_python() else {
        return;
    };
    let clock = FakeClock::new(NOW.parse().unwrap());
    let world = World::on(Arc::new(SystemClock::start().unwrap()), clock).with_tokens();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = world.parts.clone();
    let never = std::future::pending();
    let serving = serve(listener, world.router(), parts.settings, parts.clock, never);
    let serving = tokio::spawn(serving);
    let run = move || {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(python);
        command.args([
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
            "run",
        ]);
        command.arg(format!("http://{address}/openapi.json"));
        command.args(["--header", "Authorization: Bearer of-all"]);
        command.args(["--checks", CHECKS]);
        command.args(["--phases", "examples,coverage,fuzzing,stateful"]);
        command.args(["--max-examples", "30", "--seed", "4711", "--no-color"]);
        command.args(["--generation-database", "none", "--continue-on-failure"]);
        // What it leaves behind goes with the folder, and no proxy stands between us.
        command
            .current_dir(folder.path())
            .env("NO_PROXY", "127.0.0.1");
        command.output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    serving.abort();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaints}");
}
