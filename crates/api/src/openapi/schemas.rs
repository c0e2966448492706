//! Schemas and parameters. Those of responses are derived from the views, those of request bodies
//! from the types in `bodies.rs`; their limits are the domain's own.

use punctual_domain::service_call::{CallStatus, IdempotencyKey, Tags};
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, Timestamp};
use punctual_workflows::calls::ReadCalls;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::calls;

/// The schemas that the document refers to, collected while it is written.
pub(crate) struct Schemas {
    views: SchemaGenerator,
    bodies: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        let settings = settings.with_transform(RecursiveTransform(refuse_unknown_fields));
        let views = settings.clone().for_serialize();
        Self {
            views: views
                .with_transform(RecursiveTransform(remove_null))
                .into_generator(),
            bodies: settings.for_deserialize().into_generator(),
        }
    }

    /// The schema of what is sent: a reference, or the schema itself if it is small.
    pub(super) fn of_view<T: JsonSchema>(&mut self) -> Value {
        self.views.subschema_for::<T>().to_value()
    }

    /// The schema of what is received.
    pub(super) fn of_input<T: JsonSchema>(&mut self) -> Value {
        self.bodies.subschema_for::<T>().to_value()
    }

    /// All schemas that were referred to, by name.
    pub(super) fn into_definitions(mut self) -> Map<String, Value> {
        let mut definitions = self.bodies.take_definitions(true);
        definitions.extend(self.views.take_definitions(true));
        definitions
    }
}

/// An object has the fields that are named and no others.
fn refuse_unknown_fields(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut()
        && object.contains_key("properties")
    {
        object.entry("additionalProperties").or_insert(false.into());
    }
}

/// A view leaves out what is absent, so that it never has a null.
fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get("type")
        && let [only, null] = types.as_slice()
        && null == "null"
    {
        let only = only.clone();
        schema.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(options)) = schema.get("anyOf")
        && let [Value::Object(only), null] = options.as_slice()
        && null["type"] == "null"
    {
        let only = only.clone();
        schema.remove("anyOf");
        schema.ensure_object().extend(only);
    }
}

/// All parameters, by name.
pub(super) fn parameters(schemas: &mut Schemas) -> Value {
    let path = |name: &str, schema: Value| json!({ "name": name, "in": "path", "required": true, "schema": schema });
    let query = |name: &str, schema: Value, what: &str| json!({ "name": name, "in": "query", "required": false, "schema": schema, "description": what });
    let header = |name: &str, schema: Value, what: &str| json!({ "name": name, "in": "header", "required": false, "schema": schema, "description": what });
    let limit = json!({
        "type": "integer",
        "minimum": 1,
        "maximum": ReadCalls::MAX_PAGE,
        "default": calls::DEFAULT_LIMIT,
    });
    let cursor = json!({ "type": "string", "minLength": 1, "maxLength": calls::MAX_CURSOR });
    json!({
        "tenantId": path("tenantId", schemas.of_input::<TenantId>()),
        "serviceCallId": path("serviceCallId", schemas.of_input::<ServiceCallId>()),
        "correlationId": path("correlationId", schemas.of_input::<CorrelationId>()),
        "status": query("status", schemas.of_input::<CallStatus>(), "Only calls in this state."),
        "tag": query("tag", schemas.of_input::<Tags>(), "Only calls with this tag; given several times, with all of them."),
        "from": query("from", schemas.of_input::<Timestamp>(), "Only calls due then or later. Encode a + as %2B."),
        "to": query("to", schemas.of_input::<Timestamp>(), "Only calls due before. Encode a + as %2B."),
        "limit": query("limit", limit, "Maximum number of items on the page."),
        "cursor": query("cursor", cursor, "`nextCursor` of the page before."),
        "X-Correlation-Id": header("X-Correlation-Id", schemas.of_input::<CorrelationId>(), "Names the request; drawn if it is absent."),
        "Idempotency-Key": header("Idempotency-Key", schemas.of_input::<IdempotencyKey>(), "The same as `idempotencyKey`; if both are given they are equal."),
    })
}
