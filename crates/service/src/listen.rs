//! Binds the HTTP API, for `serve` and for `check`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use punctual_api::Tokens;
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::failure::Failure;
use crate::settings::ApiSettings;

/// Maximum number of bytes that the system keeps of an answer whose client does not take it.
const SEND_BUFFER: usize = 256 * 1_024;

/// Maximum number of connections that wait to be accepted; a client beyond it retries after a second.
const BACKLOG: i32 = 1_024;

/// A bound address, and the tokens that it accepts.
pub(crate) struct Bound {
    pub(crate) listener: TcpListener,
    pub(crate) tokens: Tokens,
    /// The file of the tokens.
    pub(crate) tokens_file: Option<PathBuf>,
}

/// Why the API cannot be served, in a sentence.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another process listens on the address.
    AddressInUse(String),
    /// Any other reason.
    Wrong(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (Refusal::AddressInUse(sentence) | Refusal::Wrong(sentence)) = refusal;
        Self::refused(sentence)
    }
}

/// Reads a file of tokens.
pub(crate) fn read_tokens(path: &Path) -> Result<Tokens, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("API_TOKENS_FILE {name} cannot be read: {error}"))?;
    Tokens::parse(&text).map_err(|error| format!("API_TOKENS_FILE {name}: {error}"))
}

/// Binds the address, if its tokens allow it.
pub(crate) fn bind(settings: &ApiSettings) -> Result<Bound, Refusal> {
    let tokens = match &settings.tokens_file {
        None => Tokens::none(),
        Some(path) => read_tokens(path).map_err(Refusal::Wrong)?,
    };
    punctual_api::check_bind(settings.listen, &tokens).map_err(Refusal::Wrong)?;
    let listener = listen(settings.listen).map_err(|error| {
        let sentence = format!(
            "the API cannot listen on {}: {error}; name another address with --listen or API_LISTEN",
            settings.listen
        );
        match error.kind() {
            io::ErrorKind::AddrInUse => Refusal::AddressInUse(sentence),
            _ => Refusal::Wrong(sentence),
        }
    })?;
    Ok(Bound {
        listener,
        tokens,
        tokens_file: settings.tokens_file.clone(),
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Connections inherit it.
    set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

impl Bound {
    /// The bound address, with the port that the system chose if it was 0.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.listener.local_addr();
        address.map_err(|error| Failure::refused(format!("the API's address is unknown: {error}")))
    }
}
