//! Service calls for the lines about them: what is submitted, the engine that makes them, a target
//! for their requests, and the bare loop beside it.

mod bare;
mod engine;
mod http;
mod transcript;

use std::path::PathBuf;

use punctual_adapters_sqlite::{SchemaSet, migrate};
use punctual_domain::service_call::{Submission, UnknownFields};
use punctual_domain::{TenantId, Timestamp};
use serde_json::{Value, json};

use crate::Outcome;
use crate::databases::Copy;
use crate::rows::tenants;
use crate::turns::Bench;

pub(crate) use bare::{BareCalls, PHASES, REQUESTS};
pub(crate) use engine::{Engine, build, statements_of_each, submit};
pub(crate) use http::{Client, Target, converse};
pub(crate) use transcript::Transcript;

/// Whose calls they are.
pub(crate) const TENANTS: usize = 20;

/// Number of concurrent submitters, and of requests in flight: the default limit of the engine for
/// one host.
pub(crate) const AT_ONCE: usize = 64;

/// The JSON of a submission, as a client would send it.
pub(crate) fn submission_json(url: &str, due_at: Timestamp) -> Value {
    json!({
        "name": "send the reminder",
        "dueAt": due_at.to_string(),
        "tags": ["bench"],
        "requestSpec": {
            "method": "POST",
            "url": url,
            "headers": { "Content-Type": "application/json" },
            "body": r#"{"reminder":"4711","to":"somebody","text":"the invoice is due"}"#,
        },
    })
}

/// Calls to be submitted, the tenants in turn.
pub(crate) fn submissions(count: usize, url: &str, due_at: Timestamp) -> Outcome<Vec<Submission>> {
    let (tenants, json) = (tenants(TENANTS)?, submission_json(url, due_at));
    let tenants = tenants.iter().cycle().take(count);
    tenants
        .map(|tenant| submission(tenant.clone(), &json))
        .collect()
}

/// A call to be submitted.
pub(crate) fn submission(tenant: TenantId, json: &Value) -> Outcome<Submission> {
    Submission::read(tenant, json, UnknownFields::Refused)
        .map_err(|errors| format!("a submission of the benchmark is refused: {errors:?}").into())
}

/// A new and empty file for calls and their timers, on the disk.
pub(crate) fn empty_file(bench: &mut Bench) -> Outcome<Copy> {
    let original: PathBuf = bench.databases.folder.join("calls.db");
    if !original.exists() {
        migrate(&original, SchemaSet::Shared, bench.now())?;
    }
    bench.databases.copy_of(&original)
}
