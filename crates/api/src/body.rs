//! Reading bodies: JSON, of limited length, all together of limited length.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use punctual_domain::service_call::FieldErrors;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::{Kind, Problem};
use crate::strict::REPEATED;

/// Room for bodies is counted in pieces of so many bytes.
const PIECE: usize = 1_024;
/// So much of a body that is too long is still taken, and thrown away: who is cut off while
/// sending does not read the answer.
const THROWN_AWAY: usize = 8 * 1_024 * 1_024;

/// Room for the bodies of all requests.
pub(crate) struct Room {
    pieces: Semaphore,
    longest: usize,
}

impl Room {
    pub(crate) fn new(longest: usize, all: usize) -> Self {
        Self {
            pieces: Semaphore::new(all.max(longest).div_ceil(PIECE)),
            longest,
        }
    }

    /// Reads a body to its end. The room is taken until the permit is dropped.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Problem> {
        check_type(headers)?;
        // What does not say how long it is may be as long as any.
        let announced = body.size_hint().exact().unwrap_or(self.longest as u64);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > self.longest {
            // A client that waits for leave to send is answered at once.
            if !headers.contains_key(header::EXPECT) {
                throw_away(body).await;
            }
            return Err(self.too_long());
        }
        let pieces = u32::try_from(announced.div_ceil(PIECE)).unwrap_or(u32::MAX);
        let permit = self.pieces.try_acquire_many(pieces).map_err(|_| {
            Problem::unavailable("too many long bodies are arriving: try again", 1).closing()
        })?;
        let mut read = Vec::with_capacity(announced.min(64 * PIECE));
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| {
                Problem::new(Kind::Malformed, "the body did not arrive as a whole").closing()
            })?;
            if read.len() + chunk.len() > self.longest {
                drop((read, permit));
                throw_away(Body::from_stream(chunks)).await;
                return Err(self.too_long());
            }
            read.extend_from_slice(&chunk);
        }
        Ok((Bytes::from(read), permit))
    }

    fn too_long(&self) -> Problem {
        let longest = self.longest;
        Problem::new(
            Kind::TooLarge,
            format!("the body has more than {longest} bytes: give at most so many"),
        )
        .closing()
    }
}

async fn throw_away(body: Body) {
    let mut chunks = body.into_data_stream();
    let mut thrown = 0;
    while thrown < THROWN_AWAY {
        match chunks.next().await {
            Some(Ok(chunk)) => thrown += chunk.len(),
            _ => return,
        }
    }
}

/// Only JSON in UTF-8, as it is.
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

/// Reads JSON: what is none is malformed, what is another JSON than expected is invalid.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data if !error.to_string().starts_with(REPEATED) => {
            let mut errors = FieldErrors::default();
            errors.add("", "it is not a JSON object");
            Problem::invalid(errors)
        }
        // A name that stands twice, or no JSON at all. The parser's words say what it met and where, and repeat nothing of the text.
        _ => Problem::new(
            Kind::Malformed,
            format!("the body is not JSON that can be read: {error}"),
        ),
    })
}
