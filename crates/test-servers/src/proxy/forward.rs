//! One connection through the proxy: a thread for each direction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use super::network::{Moment, Network};
use super::questions::Questions;

/// How much is forwarded at a time.
const CHUNK: usize = 64 * 1024;

/// From the beginning of a connection to its end.
pub(super) fn serve(client: TcpStream, id: usize, network: &Arc<Network>) {
    if !network.may_go_on(id) {
        return;
    }
    let (host, port) = &network.target;
    // A server that refuses shows as a connection that is closed at once.
    let Ok(server) = TcpStream::connect((host.as_str(), *port)) else {
        return shut(&client, Shutdown::Both);
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    if !network.add(id, &server) {
        return;
    }
    let (Ok(client_half), Ok(server_half)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let answers = {
        let network = Arc::clone(network);
        std::thread::spawn(move || forward_answers(server_half, client_half, id, &network))
    };
    forward_questions(client, server, id, network);
    let _ = answers.join();
}

/// From the client to the server, up to where the connection is to be cut.
fn forward_questions(mut client: TcpStream, mut server: TcpStream, id: usize, network: &Network) {
    let mut chunk = vec![0; CHUNK];
    let mut cutter = Cutter::default();
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        if !network.may_go_on(id) {
            break;
        }
        let piece = &chunk[..length];
        let cut = cutter.place_in(piece, id, network);
        let forwarded = server.write_all(&piece[..cut.unwrap_or(length)]);
        if forwarded.is_err() || cut.is_some() {
            break;
        }
    }
    // The end of a connection is held up by a hang as everything else is.
    network.may_go_on(id);
    // The server carries out what it has got, and then ends the connection itself.
    shut(&server, Shutdown::Write);
}

/// From the server to the client, until the server ends; nothing more once the connection is cut.
fn forward_answers(mut server: TcpStream, mut client: TcpStream, id: usize, network: &Network) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = server.read(&mut chunk) {
        if !network.may_go_on(id) {
            break;
        }
        if network.may_answer(id) && client.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    network.may_go_on(id);
    shut(&client, Shutdown::Both);
}

/// Finds where one connection is to be cut.
#[derive(Debug, Default)]
struct Cutter {
    questions: Questions,
    /// The end of what was forwarded: words may arrive in two pieces.
    tail: Vec<u8>,
    /// The words were met, and the rest of their question has not arrived yet.
    waits_for_end: bool,
}

impl Cutter {
    /// How much of the next piece is forwarded before the connection is cut; `None` if it goes on.
    fn place_in(&mut self, piece: &[u8], id: usize, network: &Network) -> Option<usize> {
        let ends = self.questions.ends_in(piece);
        if self.waits_for_end {
            return ends.first().copied();
        }
        let known = self.tail.len();
        self.tail.extend_from_slice(piece);
        let met = network.take_order(id, &self.tail, known);
        let unneeded = self.tail.len().saturating_sub(network.kept());
        self.tail.drain(..unneeded);
        let (moment, words) = met?;
        if moment == Moment::Before {
            return Some(words.start.saturating_sub(known));
        }
        let end = ends.into_iter().find(|end| known + end >= words.end);
        self.waits_for_end = end.is_none();
        end
    }
}

fn shut(stream: &TcpStream, how: Shutdown) {
    // The other side may have been faster.
    let _ = stream.shutdown(how);
}
