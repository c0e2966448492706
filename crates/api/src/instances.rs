//! The instances that share the work, for holders of a token of all tenants.

use std::sync::Arc;

use axum::http::StatusCode;
use punctual_domain::Timestamp;
use punctual_ports::{ClaimedWork, Instance};
use schemars::JsonSchema;
use serde::Serialize;

use crate::request_context::{HandlerResult, RequestContext, json};
use crate::router::Api;

/// The instances that live, in the order of their ids.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Instances")]
pub struct InstancesView {
    instances: Vec<InstanceView>,
}

/// A process that fires timers or makes calls.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Instance")]
struct InstanceView {
    /// Drawn at its start.
    #[schemars(extend("format" = "uuid"))]
    instance_id: String,
    /// Host and process.
    name: String,
    version: String,
    /// The modules that it runs, separated by commas.
    modules: String,
    started_at: Timestamp,
    /// When it last said that it lives, by the clock of the database.
    heartbeat_at: Timestamp,
    /// Milliseconds by which its clock is ahead of that of the database.
    clock_offset_ms: i64,
    /// Present if several instances can share the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed: Option<ClaimedView>,
}

/// What an instance is working on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClaimedWork")]
struct ClaimedView {
    timers: u64,
    attempts: u64,
    messages: u64,
}

impl From<Vec<Instance>> for InstancesView {
    fn from(instances: Vec<Instance>) -> Self {
        Self {
            instances: instances.into_iter().map(InstanceView::from).collect(),
        }
    }
}

impl From<Instance> for InstanceView {
    fn from(instance: Instance) -> Self {
        Self {
            instance_id: instance.id.to_string(),
            name: instance.name,
            version: instance.version,
            modules: instance.modules,
            started_at: instance.started_at,
            heartbeat_at: instance.heartbeat_at,
            clock_offset_ms: instance.clock_offset_millis,
            claimed: instance.claimed.map(ClaimedView::from),
        }
    }
}

impl From<ClaimedWork> for ClaimedView {
    fn from(claimed: ClaimedWork) -> Self {
        Self {
            timers: claimed.timers,
            attempts: claimed.attempts,
            messages: claimed.messages,
        }
    }
}

pub(crate) async fn list(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    context.checked(Some(()))?;
    let instances = (api.parts.instances)().await?;
    json(StatusCode::OK, &InstancesView::from(instances))
}
