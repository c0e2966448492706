//! What the documents say about messages, held against the code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod messages_document;
