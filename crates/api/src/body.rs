//! Request bodies: JSON, limited in length, in all bodies' total length, and in slowness.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, select};
use punctual_domain::service_call::FieldErrors;
use punctual_ports::ClockPort;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::budget::{Budget, Exhausted, Reservation};
use crate::parts::ApiSettings;
use crate::problem::{Kind, Problem};
use crate::serve::sleep;
use crate::strict::REPEATED;

/// Maximum number of bytes of a refused body that are still read and discarded: a client that is
/// disconnected while sending does not read the response.
const MAX_DISCARDED: usize = 8 * 1_024 * 1_024;

/// The bodies of all requests. What has arrived takes room, not what was announced: a body that never
/// arrives blocks no other.
pub(crate) struct Bodies {
    room: Budget,
    longest: usize,
    pace: Pace,
    clock: Arc<dyn ClockPort>,
}

/// The minimum pace of a body: its bytes within each interval, until it ends.
#[derive(Debug, Clone, Copy)]
struct Pace {
    bytes: usize,
    within: Duration,
}

impl Bodies {
    pub(crate) fn new(settings: &ApiSettings, clock: Arc<dyn ClockPort>) -> Self {
        let (longest, all) = (settings.body, settings.all_bodies);
        Self {
            // Any body fits into a tenant's share, and several shares into all.
            room: Budget::new(all.max(longest), (all / 4).max(longest)),
            longest,
            pace: Pace {
                bytes: settings.body_pace,
                within: settings.body_patience,
            },
            clock,
        }
    }

    /// Reads a body to its end. Its room is taken until the reservation is dropped.
    pub(crate) async fn read(
        &self,
        tenant: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, Reservation<'_>), Problem> {
        check_type(headers)?;
        // A body without a declared length may be as long as any.
        let announced = body.size_hint().exact().unwrap_or(self.longest as u64);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        let mut arriving = Arriving::new(body, self);
        if announced > self.longest {
            // A client that waits for 100 Continue is answered at once.
            if !headers.contains_key(header::EXPECT) {
                arriving.discard().await?;
            }
            return Err(self.too_long());
        }
        let mut reservation = self.room.reserve(tenant);
        let mut read = Vec::new();
        while let Some(chunk) = arriving.next().await? {
            let grown = if read.len() + chunk.len() > self.longest {
                Err(self.too_long())
            } else {
                reservation.grow(chunk.len()).map_err(no_room)
            };
            if let Err(problem) = grown {
                drop((read, reservation));
                arriving.discard().await?;
                return Err(problem);
            }
            read.extend_from_slice(&chunk);
        }
        Ok((Bytes::from(read), reservation))
    }

    fn too_long(&self) -> Problem {
        let longest = self.longest;
        Problem::new(
            Kind::TooLarge,
            format!("the body is too long: give at most {longest} bytes"),
        )
        .closing()
    }
}

fn no_room(exhausted: Exhausted) -> Problem {
    let detail = match exhausted {
        Exhausted::Share => "too many long bodies of this tenant are arriving: try again",
        Exhausted::Total => "too many long bodies are arriving: try again",
    };
    Problem::unavailable(detail, 1).closing()
}

/// A body that is arriving, at its minimum pace.
struct Arriving {
    chunks: BodyDataStream,
    clock: Arc<dyn ClockPort>,
    pace: Pace,
    /// The bytes that have arrived since the deadline was set.
    arrived: usize,
    deadline: BoxFuture<'static, ()>,
}

impl Arriving {
    fn new(body: Body, bodies: &Bodies) -> Self {
        let clock = Arc::clone(&bodies.clock);
        Self {
            chunks: body.into_data_stream(),
            deadline: sleep(&clock, bodies.pace.within),
            clock,
            pace: bodies.pace,
            arrived: 0,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match select(self.chunks.next(), &mut self.deadline).await {
            Either::Left((None, _)) => Ok(None),
            Either::Left((Some(Ok(chunk)), _)) => {
                self.arrived = self.arrived.saturating_add(chunk.len());
                if self.arrived >= self.pace.bytes {
                    self.arrived = 0;
                    self.deadline = sleep(&self.clock, self.pace.within);
                }
                Ok(Some(chunk))
            }
            Either::Left((Some(Err(_)), _)) => {
                let detail = "the body did not arrive completely";
                Err(Problem::new(Kind::Malformed, detail).closing())
            }
            Either::Right(_) => {
                let (bytes, seconds) = (self.pace.bytes, self.pace.within.as_secs());
                let detail = format!(
                    "the body arrives too slowly: send {bytes} bytes or its end every {seconds} s"
                );
                Err(Problem::new(Kind::Timeout, detail).closing())
            }
        }
    }

    async fn discard(&mut self) -> Result<(), Problem> {
        let mut discarded = 0;
        while discarded < MAX_DISCARDED {
            match self.next().await {
                Ok(Some(chunk)) => discarded += chunk.len(),
                Ok(None) => break,
                // An error in the rest of it is not the one to report.
                Err(problem) if problem.kind == Kind::Malformed => break,
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }
}

/// Refuses all but JSON in UTF-8, without an encoding.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail: &str| Err(Problem::new(Kind::UnsupportedMediaType, detail).closing());
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    if text(header::CONTENT_ENCODING).is_some_and(|it| !it.eq_ignore_ascii_case("identity")) {
        return refused("the body is encoded: send it as it is, without Content-Encoding");
    }
    let given = text(header::CONTENT_TYPE).unwrap_or_default();
    let mut parts = given.split(';').map(str::trim);
    let is_json = parts
        .next()
        .is_some_and(|it| it.eq_ignore_ascii_case("application/json"));
    let is_utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    if is_json && is_utf8 {
        return Ok(());
    }
    refused("the body is not declared as JSON: send Content-Type: application/json")
}

/// Parses JSON: what is none is malformed, what is another JSON than expected is invalid.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data if !error.to_string().starts_with(REPEATED) => {
            let mut errors = FieldErrors::default();
            errors.add("", "it is not a JSON object");
            Problem::invalid(errors)
        }
        // A name that occurs twice, or no JSON at all. The parser says what it found and where, and repeats
        // nothing of the text.
        _ => Problem::new(
            Kind::Malformed,
            format!("the body is not JSON that can be read: {error}"),
        ),
    })
}
