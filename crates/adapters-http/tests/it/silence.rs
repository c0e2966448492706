//! Targets that take their time. The caller's patience ends an attempt, and ends it wholly.

use std::pin::pin;

use punctual_ports::HttpClientPort;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::fixture::{LOOPBACK, Target, client, get, post, read_head, read_request, write};

/// A target that tells when it is in the middle of its script, and how the connection then ends.
async fn telling(answer: &'static [u8]) -> (Target, mpsc::UnboundedReceiver<&'static str>) {
    let (tell, told) = mpsc::unbounded_channel();
    let target = Target::start(move |mut socket: TcpStream| {
        let tell = tell.clone();
        async move {
            if read_request(&mut socket).await.is_empty() {
                return;
            }
            write(&mut socket, answer).await;
            tell.send("waits").unwrap();
            let ended = socket.read_u8().await.is_err();
            let _ = tell.send(if ended { "ended" } else { "got more" });
        }
    })
    .await;
    (target, told)
}

#[tokio::test]
async fn who_gives_up_closes_the_connection_and_others_are_not_held_up() {
    for answer in [
        b"".as_slice(),
        b"HTTP/1.1 200 OK\r\ncont",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    ] {
        let (target, mut told) = telling(answer).await;
        let quick = Target::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let client = client(LOOPBACK);
        {
            let mut waiting = pin!(client.attempt(post(&target.url("/"), "x")));
            tokio::select! {
                answered = &mut waiting => panic!("{answered:?}"),
                said = told.recv() => assert_eq!(said, Some("waits")),
            }
            tokio::select! {
                answered = &mut waiting => panic!("{answered:?}"),
                answered = client.attempt(get(&quick.url("/"))) => assert_eq!(answered.unwrap().status, 200),
            }
            assert!(told.try_recv().is_err());
        }
        assert_eq!(told.recv().await, Some("ended"));
        assert_eq!(target.connections().await, 1);
    }
}

#[tokio::test]
async fn an_answer_that_drips_is_read_to_its_end() {
    let target = Target::start(|mut socket| async move {
        read_request(&mut socket).await;
        socket.set_nodelay(true).unwrap();
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ndrips" {
            write(&mut socket, &[*byte]).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    let response = client(LOOPBACK)
        .attempt(get(&target.url("/")))
        .await
        .unwrap();
    assert_eq!(response.body, b"drips");
}

/// A socket that is closed in the usual way would still deliver what the operating system holds.
#[tokio::test]
async fn what_was_not_yet_read_when_the_caller_gave_up_is_taken_back() {
    let socket = TcpSocket::new_v4().unwrap();
    // So small that most of the body waits on the caller's side.
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client(LOOPBACK);
    let body = "b".repeat(256 * 1_024);
    let mut target = {
        let mut waiting = pin!(client.attempt(post(&url, &body)));
        let begun = async {
            let (mut target, _) = listener.accept().await.unwrap();
            read_head(&mut target).await;
            target
        };
        tokio::select! {
            answered = &mut waiting => panic!("{answered:?}"),
            target = begun => target,
        }
    };
    let mut got = Vec::new();
    let ended = target.read_to_end(&mut got).await;
    assert!(
        ended.is_err(),
        "the connection ended as if all had been sent"
    );
    assert!(got.len() < body.len(), "{}", got.len());
}

/// Otherwise targets would log every call as a broken connection.
#[tokio::test]
async fn after_a_whole_answer_the_connection_is_closed_as_usual() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client(LOOPBACK);
    let answering = async {
        let (mut target, _) = listener.accept().await.unwrap();
        read_request(&mut target).await;
        write(
            &mut target,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        )
        .await;
        target
    };
    let (answered, mut target) = tokio::join!(client.attempt(get(&url)), answering);
    assert_eq!(answered.unwrap().body, b"ok");
    assert_eq!(target.read(&mut [0; 1]).await.unwrap(), 0);
    // A reset after that would not be read, but noted at the socket.
    assert!(target.take_error().unwrap().is_none());
}
