//! Requests over real sockets on loopback, to targets of every manner.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corpus;
mod fixture;
mod floods;
mod lookups;
mod odd_answers;
mod requests;
mod secrets;
mod silence;
mod ssrf;
mod tls;
