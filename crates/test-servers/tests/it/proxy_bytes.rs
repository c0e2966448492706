//! What exactly arrives when the proxy cuts, however a client's bytes are split: a server that only
//! listens, and a client that only sends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use punctual_test_servers::Proxy;

const BEGIN: &[u8] = b"Q\0\0\0\x0aBEGIN\0";
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// The same as a statement: parse, execute, sync.
const STATEMENT: &[u8] = b"P\0\0\0\x0e\0COMMIT\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

/// A proxy in front of a server that takes one connection and returns all that arrived on it.
fn listening() -> (Proxy, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(&format!("tcp://{}", listener.local_addr().unwrap()));
    let server = std::thread::spawn(move || {
        let mut arrived = Vec::new();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut arrived).unwrap();
        arrived
    });
    (proxy, server)
}

/// Sends the pieces and waits until the connection is closed, without any answer.
fn send(proxy: &Proxy, pieces: &[&[u8]]) {
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    client.set_nodelay(true).unwrap();
    for piece in pieces {
        // It may be cut already.
        let _ = client.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert_eq!(answer, b"");
}

#[test]
fn a_cut_after_lets_the_whole_question_through_and_no_other() {
    for question in [COMMIT, STATEMENT] {
        let all = [BEGIN, question, BEGIN].concat();
        for at in 0..all.len() {
            let (proxy, server) = listening();
            proxy.cut_after("COMMIT");
            send(&proxy, &[&all[..at], &all[at..]]);
            assert_eq!(server.join().unwrap(), [BEGIN, question].concat(), "{at}");
            assert_eq!(proxy.cuts(), 1);
        }
    }
}

#[test]
fn a_cut_before_lets_no_whole_word_through() {
    let all = [BEGIN, COMMIT, BEGIN].concat();
    let words = BEGIN.len() + 5;
    for at in 0..all.len() {
        let (proxy, server) = listening();
        proxy.cut_before("COMMIT");
        send(&proxy, &[&all[..at], &all[at..]]);
        let arrived = server.join().unwrap();
        // What arrived before the words were complete has been forwarded.
        assert!(arrived.len() < words + 6, "{at}");
        assert_eq!(arrived, all[..arrived.len().max(words)], "{at}");
        assert_eq!(proxy.cuts(), 1);
    }
}

#[test]
fn words_that_were_sent_before_the_order_are_not_meant() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(&format!("tcp://{}", listener.local_addr().unwrap()));
    // Because of these, the end of what was sent is kept.
    proxy.cut_after("words that nobody sends");
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(COMMIT).unwrap();
    let mut arrived = vec![0; COMMIT.len()];
    server.read_exact(&mut arrived).unwrap();
    proxy.cut_after("COMMIT");
    client.write_all(BEGIN).unwrap();
    drop(client);
    server.read_to_end(&mut arrived).unwrap();
    assert_eq!(arrived, [COMMIT, BEGIN].concat());
    assert_eq!(proxy.cuts(), 0);
}
