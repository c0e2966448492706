//! Names and their addresses: asked for once, checked, and few at a time.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use punctual_ports::HttpClientPort;

use crate::fixture::{Answers, Target, client, client_with, get, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Only the first of them may be reached.
const ONE: &str = "127.0.0.1/32";

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

#[tokio::test]
async fn each_attempt_asks_once_and_goes_where_that_answer_says() {
    let target = Target::answering(OK).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // The name changes its address after the first lookup.
    let client = client_with(ONE, move |_, port| {
        Ok(match count.fetch_add(1, Ordering::Relaxed) {
            0 => vec![at("127.0.0.1", port)],
            _ => vec![at("127.0.0.2", port)],
        })
    });
    let url = format!("http://rebinding.test:{}/", target.address.port());
    assert_eq!(client.attempt(get(&url)).await.unwrap().status, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let refused = client.attempt(get(&url)).await.unwrap_err();
    assert_eq!(refused.kind.as_str(), "TargetNotAllowed");
    assert_eq!(target.connections().await, 1);
}

#[tokio::test]
async fn of_several_addresses_only_those_that_are_allowed_are_tried() {
    let target = Target::answering(OK).await;
    let port = target.address.port();
    let on_all = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    on_all.set_nonblocking(true).unwrap();
    let denied = on_all.local_addr().unwrap();
    let client = client_with(ONE, move |_, _| Ok(vec![denied, at("127.0.0.1", port)]));
    assert_eq!(
        client
            .attempt(get("http://mixed.test/"))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(target.connections().await, 1);
    assert_eq!(
        on_all.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[tokio::test]
async fn the_next_address_is_tried_if_the_first_takes_no_connection() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let target = Target::answering(OK).await;
    let there = target.address;
    let client = client_with(ONE, move |_, _| Ok(vec![nobody, nobody, there]));
    assert_eq!(
        client
            .attempt(get("http://two.test/"))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(target.connections().await, 1);
}

#[tokio::test]
async fn the_next_address_is_not_tried_once_there_was_a_connection() {
    let rude = Target::start(|socket| async move { drop(socket) }).await;
    let other = Target::answering(OK).await;
    let both = vec![rude.address, other.address];
    let client = client_with(ONE, move |_, _| Ok(both.clone()));
    let failure = client
        .attempt(post("http://two.test/", "x"))
        .await
        .unwrap_err();
    assert_eq!(failure.kind.as_str(), "ConnectionLost");
    assert_eq!(
        (rude.connections().await, other.connections().await),
        (1, 0)
    );
}

#[tokio::test]
async fn a_name_without_an_address_is_told() {
    type Answer = fn() -> io::Result<Vec<SocketAddr>>;
    let answers: [(Answer, &str); 2] = [
        (|| Ok(Vec::new()), "the name has none"),
        (|| Err(io::Error::other("no such name")), "no such name"),
    ];
    for (answer, why) in answers {
        let client = client_with("", move |_, _| answer());
        let failure = client
            .attempt(get("http://nowhere.test/p?q"))
            .await
            .unwrap_err();
        assert_eq!(failure.kind.as_str(), "NameNotResolved");
        assert_eq!(
            failure.message,
            format!("no address of nowhere.test was found: {why}")
        );
    }
}

#[tokio::test]
async fn a_resolver_that_panics_fails_the_attempt_alone() {
    let client = client_with("", |_, _| panic!("broken"));
    for _ in 0..2 {
        let failure = client.attempt(get("http://a.test/")).await.unwrap_err();
        assert_eq!(failure.kind.as_str(), "NameNotResolved");
    }
}

/// What cannot be ended must keep counting, although nobody waits for it any longer.
#[test]
fn slow_lookups_are_few_and_hold_up_no_address() {
    // One thread for the lookup that does not end, and one for what comes after it, in turn.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (release, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let slow = Answers(move |host: &str, _| {
            started.send(host.to_owned()).unwrap();
            if host == "first.test" {
                held.lock().unwrap().recv().unwrap();
            }
            Err(io::Error::other("at last"))
        });
        let client = client(ONE).with_resolver(Arc::new(slow), 1);
        {
            let mut first = pin!(client.attempt(get("http://first.test/")));
            tokio::select! {
                answered = &mut first => panic!("{answered:?}"),
                host = starts.recv() => assert_eq!(host.unwrap(), "first.test"),
            }
        }
        let target = Target::answering(OK).await;
        let mut second = pin!(client.attempt(get("http://second.test/")));
        let others = async {
            let answered = client.attempt(get(&target.url("/"))).await;
            assert_eq!(answered.unwrap().status, 200);
            // It would run after the second lookup, had that started.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        };
        tokio::select! {
            biased;
            answered = &mut second => panic!("{answered:?}"),
            () = others => {}
        }
        assert!(
            starts.try_recv().is_err(),
            "a lookup started beside the first"
        );
        release.send(()).unwrap();
        assert!(second.await.unwrap_err().message.ends_with("at last"));
        assert_eq!(starts.recv().await.unwrap(), "second.test");
    });
}

/// As many of two tenants as could ever be under way, and the next tenant's begins at once.
#[tokio::test]
async fn names_that_are_never_found_hold_up_no_other_tenants_names() {
    let target = Target::answering(OK).await;
    let there = target.address;
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let resolver = Answers(move |host: &str, _| {
        if host == "hangs.test" {
            // All of them wait here until the test is over.
            let _ = held
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .recv();
        }
        Ok(vec![there])
    });
    let client = Arc::new(client(ONE).with_resolver(Arc::new(resolver), 64));
    let of = |tenant: &str, url: &str| {
        let mut attempt = get(url);
        attempt.key.tenant_id = punctual_domain::TenantId::new(tenant).unwrap();
        attempt
    };
    let mut hanging = Vec::new();
    for n in 0..200 {
        let attempt = of(["a", "b"][n % 2], "http://hangs.test/");
        let client = Arc::clone(&client);
        hanging.push(tokio::spawn(async move { client.attempt(attempt).await }));
    }
    tokio::task::yield_now().await;
    let answered = client.attempt(of("c", "http://found.test/")).await;
    assert_eq!(answered.unwrap().status, 200);
    drop(release);
    for task in hanging {
        assert_eq!(task.await.unwrap().unwrap().status, 200, "it has its turn");
    }
}
