//! The HTTP API: whether `serve` could listen where it should, and with the tokens that it should have.
//!
//! It is bound exactly as `serve` binds it, and closed again at once.

use super::report::Report;
use crate::listen::{Refusal, bind};
use crate::settings::Sources;

const WHAT: &str = "API";

/// Says whether the API can be served. That its address is taken is no fault while a database is
/// served: then the process that serves it listens there.
pub(super) fn check(sources: &Sources<'_>, is_served: bool, report: &mut Report) {
    // A setting that could not be read was reported as such.
    let Ok(Some(settings)) = sources.api() else {
        return;
    };
    let listen = settings.listen;
    match bind(&settings) {
        Ok(bound) => report.ok(
            WHAT,
            match bound.tokens.len() {
                0 => format!("it can listen on {listen}, and needs no token there"),
                1 => format!("it can listen on {listen}, with one token"),
                count => format!("it can listen on {listen}, with {count} tokens"),
            },
        ),
        Err(Refusal::AddressInUse(_)) if is_served => report.ok(
            WHAT,
            format!("{listen} is taken, and the database is being served"),
        ),
        Err(Refusal::AddressInUse(sentence) | Refusal::Wrong(sentence)) => {
            report.wrong(WHAT, sentence);
        }
    }
}
