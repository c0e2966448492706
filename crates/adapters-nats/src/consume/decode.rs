//! Decoding of messages from the broker.

use async_nats::Message;
use punctual_domain::{MessageEnvelope, Topic};

use crate::names::below_topic;
use crate::{MAX_MESSAGE_BYTES, Prefix};

/// Decodes a message of a topic. Envelope, payload and subject have to agree.
///
/// # Errors
/// With the reason for the dead letter. A retry never helps.
pub(super) fn decode(
    prefix: &Prefix,
    topic: Topic,
    message: &Message,
) -> Result<MessageEnvelope, String> {
    let length = message.payload.len();
    if length > MAX_MESSAGE_BYTES {
        return Err(format!(
            "message has {length} bytes: at most {MAX_MESSAGE_BYTES} are taken"
        ));
    }
    if length == 0 {
        return Err("message is empty: an envelope is expected".to_owned());
    }
    let envelope =
        MessageEnvelope::from_json(&message.payload).map_err(|error| error.to_string())?;
    let expected = envelope.message.topic();
    if expected != topic {
        let name = envelope.message.type_name();
        return Err(format!("{name} belongs to {expected} and came to {topic}"));
    }
    check_subject(prefix, topic, message.subject.as_str(), &envelope)?;
    Ok(envelope)
}

/// A subject is the bare topic, or names the tenant after it. The previous version named the service call as
/// well; such messages may still be in the streams, and other programs may write them for ever.
fn check_subject(
    prefix: &Prefix,
    topic: Topic,
    subject: &str,
    envelope: &MessageEnvelope,
) -> Result<(), String> {
    let Some(rest) = below_topic(prefix, topic, subject) else {
        return Err(format!("subject {subject} is not one of {topic}"));
    };
    if rest.is_empty() {
        return Ok(());
    }
    let tenant = envelope.message.tenant_id().as_str();
    let call = envelope.message.service_call_id().to_string();
    let mut tokens = rest.split('.');
    match (tokens.next(), tokens.next(), tokens.next()) {
        (Some(of_tenant), _, _) if of_tenant != tenant => Err(format!(
            "subject {subject} names the tenant {of_tenant}, but the message is of {tenant}"
        )),
        (_, None, _) => Ok(()),
        (_, Some(of_call), None) if of_call.eq_ignore_ascii_case(&call) => Ok(()),
        (_, Some(of_call), None) => Err(format!(
            "subject {subject} names the service call {of_call}, but the message is of {call}"
        )),
        _ => {
            let topic = prefix.topic(topic);
            Err(format!(
                "subject {subject} is not {topic} or {topic}.<tenantId>"
            ))
        }
    }
}
