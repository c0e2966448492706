//! Whether a connection ends at the process of the server that serves it, or at a pooler before it.
//!
//! A pooler may give each transaction to another process, which knows none of the settings and statements
//! of the one before. It also hands out cancel keys of its own, since the server's would name whoever uses
//! the process by then. So where the key names the process that answers, the session is ours alone.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Length of a request to cancel: its length, its code, the process and the secret, four bytes each.
const CANCEL_REQUEST: usize = 16;
/// More than a client writes to cancel, with its question whether it may encrypt.
const ROOM: usize = 64;

/// Whether the cancel key of a connection names a process of the server.
pub(crate) async fn is_direct(client: &Client, process: i32) -> bool {
    key_process(client).await.is_ok_and(|key| key == process)
}

/// The process that the cancel key names. The driver tells it to nobody but a server, so it is read from a
/// request to cancel that goes nowhere.
async fn key_process(client: &Client) -> io::Result<i32> {
    let (near, mut far) = tokio::io::duplex(ROOM);
    far.write_all(b"S").await?;
    let token = client.cancel_token();
    let sent = token.cancel_query_raw(near, Unencrypted).await;
    sent.map_err(io::Error::other)?;
    let mut written = Vec::with_capacity(ROOM);
    far.read_to_end(&mut written).await?;
    let request = written.last_chunk::<CANCEL_REQUEST>();
    let process = request.and_then(|request| request[8..].first_chunk::<4>());
    let process = process.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(i32::from_be_bytes(*process))
}

/// Takes the place of an encryption that the driver was told to insist on.
struct Unencrypted;

impl TlsConnect<DuplexStream> for Unencrypted {
    type Stream = Plain;
    type Error = io::Error;
    type Future = Ready<io::Result<Plain>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Plain(stream)))
    }
}

struct Plain(DuplexStream);

impl TlsStream for Plain {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
