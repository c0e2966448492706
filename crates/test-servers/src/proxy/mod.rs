//! A network between a client and its server that a test can cut or let hang, at the worst moment.

mod forward;
mod network;
mod questions;

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use network::{Moment, Network, Order};

use crate::ports::on_a_free_port;
use crate::url;

/// A TCP proxy on loopback. It reads what clients send to find where to cut: PostgreSQL's protocol, and
/// without TLS.
///
/// ```no_run
/// use punctual_test_servers::{PostgresServer, Proxy};
///
/// let Some(server) = PostgresServer::start() else { return };
/// let proxy = Proxy::start(&server.url());
/// proxy.cut_after("COMMIT");
/// // A client of `proxy.url()` that commits now has committed, and does not get to know it.
/// ```
///
/// All connections are cut when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    target_url: String,
    port: u16,
    network: Arc<Network>,
    /// `None` while new connections are refused.
    listening: Mutex<Option<Listening>>,
}

/// The thread that accepts, and how to end it.
#[derive(Debug)]
struct Listening {
    /// The listener under another type, which can be shut: that ends an `accept` which waits.
    socket: TcpStream,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of the server at this URL, which names host and port. It forwards everything
    /// until it is told otherwise.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn start(target_url: &str) -> Self {
        let (port, listener) = on_a_free_port("a proxy", |port| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())
        });
        let network = Arc::new(Network::to(url::endpoint(target_url)));
        let listening = Listening::start(listener, &network);
        Self {
            target_url: target_url.to_owned(),
            port,
            network,
            listening: Mutex::new(Some(listening)),
        }
    }

    /// The server's URL, through this proxy.
    pub fn url(&self) -> String {
        self.url_for(&self.target_url)
    }

    /// Another URL of the same server, such as that of another user, through this proxy.
    pub fn url_for(&self, url: &str) -> String {
        url::at_port(url, self.port)
    }

    /// The port on loopback. It stays the same for as long as this value lives.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections now, on both sides. New ones are accepted, unless they are refused.
    pub fn cut(&self) {
        self.network.cut_all();
    }

    /// Cuts the next connection whose client sends these words, and leaves out the words and
    /// everything after them: a commit that has not happened. Takes the place of an order that was
    /// not carried out yet.
    ///
    /// The words of a prepared statement are sent when it is prepared, and not when it is executed.
    /// When the client notices, the server has ended its side of the connection.
    ///
    /// # Panics
    /// If there are no words.
    pub fn cut_before(&self, words: &str) {
        self.order(words, Moment::Before);
    }

    /// Cuts the next connection whose client sends these words, and forwards them up to the end of
    /// their query, or up to the next sync; the server carries that out, and its answer is swallowed:
    /// a commit that has happened. Takes the place of an order that was not carried out yet.
    ///
    /// The words of a prepared statement are sent when it is prepared, and not when it is executed.
    /// When the client notices, the server has ended its side of the connection.
    ///
    /// # Panics
    /// If there are no words.
    pub fn cut_after(&self, words: &str) {
        self.order(words, Moment::After);
    }

    /// Stops forwarding: connections stay open, new ones are accepted, and nothing arrives, not even
    /// that one side has closed its end.
    pub fn hang(&self) {
        self.network.set_hanging(true);
    }

    /// Refuses new connections, as a server does that is not there. Those that are open stay; a
    /// [`Proxy::cut`] after this leaves none.
    pub fn refuse(&self) {
        if let Some(listening) = self.listening().take() {
            listening.end();
        }
    }

    /// Goes on after [`Proxy::hang`] and [`Proxy::refuse`]; what was sent in the meantime arrives now.
    ///
    /// # Panics
    /// If somebody else has taken its port.
    pub fn resume(&self) {
        self.network.set_hanging(false);
        self.listening().get_or_insert_with(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port));
            Listening::start(listener.expect("the port is still free"), &self.network)
        });
    }

    /// How many connections clients have made so far.
    pub fn connections(&self) -> usize {
        self.network.lock().accepted
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.network.lock().open.len()
    }

    /// How many connections it has cut so far.
    pub fn cuts(&self) -> usize {
        self.network.lock().cuts
    }

    fn order(&self, words: &str, moment: Moment) {
        assert!(!words.is_empty(), "name the words at which to cut");
        self.network.lock().order = Some(Order {
            words: words.as_bytes().to_vec(),
            moment,
        });
    }

    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.cut();
    }
}

impl Listening {
    fn start(listener: TcpListener, network: &Arc<Network>) -> Self {
        let handle = listener.try_clone().expect("a proxy needs its port twice");
        let network = Arc::clone(network);
        Self {
            socket: TcpStream::from(OwnedFd::from(handle)),
            acceptor: std::thread::spawn(move || accept(&listener, &network)),
        }
    }

    /// Returns when nobody listens any more.
    fn end(self) {
        // It may have ended by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.acceptor.join();
    }
}

/// Accepts until the listener is shut.
fn accept(listener: &TcpListener, network: &Arc<Network>) {
    while let Ok((client, _)) = listener.accept() {
        let id = network.open(&client);
        let network = Arc::clone(network);
        std::thread::spawn(move || {
            forward::serve(client, id, &network);
            network.close(id);
        });
    }
}
