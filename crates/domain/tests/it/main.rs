//! The life of a call and all messages through the crate's front door, and what the documents say.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod every_message;
mod life_of_a_call;
mod messages_document;
mod previous_version;
