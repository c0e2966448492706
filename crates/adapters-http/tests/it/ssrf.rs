//! No call reaches what only this machine can reach: a corpus of tries, and a canary that sees none.

use std::collections::BTreeSet;
use std::net::IpAddr;

use punctual_domain::service_call::TargetUrl;
use punctual_ports::HttpClientPort;
use tokio::net::TcpListener;

use crate::corpus::{LITERALS, LITERALS_V6, LOCATIONS, NAMES, REFUSED_AS_URL};
use crate::fixture::{Target, client, client_with, get, read_request, write};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Listens on every address of this machine, of both kinds where there are both.
async fn canary() -> Target {
    let listener = match TcpListener::bind("[::]:0").await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
    };
    Target::on(listener, |mut socket| async move {
        read_request(&mut socket).await;
        write(&mut socket, OK).await;
    })
}

fn with_port(text: &str, canary: &Target) -> String {
    text.replace("PORT", &canary.address.port().to_string())
}

/// Hosts and addresses, as the URLs that name them.
fn literal_urls(canary: &Target) -> Vec<String> {
    let port = canary.address.port();
    let plain = LITERALS.iter().map(|host| format!("http://{host}:{port}/"));
    let bracketed = LITERALS_V6
        .iter()
        .map(|host| format!("http://[{host}]:{port}/"));
    plain.chain(bracketed).collect()
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_no_url() {
    let canary = canary().await;
    for text in REFUSED_AS_URL {
        let url = with_port(text, &canary).parse::<TargetUrl>();
        assert!(
            url.is_err(),
            "{text:?} is read as {:?}",
            url.map(|u| u.host().to_owned())
        );
    }
}

#[tokio::test]
async fn no_address_that_is_not_public_is_reached_however_it_is_written() {
    let canary = canary().await;
    let client = client("");
    for url in literal_urls(&canary) {
        for url in [url.clone(), url.replace("http:", "https:")] {
            let failure = client.attempt(get(&url)).await.unwrap_err();
            assert_eq!(
                failure.kind.as_str(),
                "TargetNotAllowed",
                "{url}: {failure:?}"
            );
            assert!(
                failure.message.contains("EXECUTION_ALLOW_NETS"),
                "{failure:?}"
            );
        }
    }
    assert_eq!(canary.connections().await, 0);
}

#[tokio::test]
async fn no_name_leads_to_such_an_address() {
    let canary = canary().await;
    for (name, answers) in NAMES {
        let client = client_with("", move |_, port| {
            let address = |text: &&str| (text.parse::<IpAddr>().unwrap(), port).into();
            Ok(answers.iter().map(address).collect())
        });
        let url = format!("http://{name}:{}/", canary.address.port());
        let failure = client.attempt(get(&url)).await.unwrap_err();
        assert_eq!(
            failure.kind.as_str(),
            "TargetNotAllowed",
            "{url}: {failure:?}"
        );
        // What a name means in here is not told to whoever asks.
        for answer in *answers {
            assert!(
                name.contains(answer) || !failure.message.contains(answer),
                "{failure:?}"
            );
        }
    }
    assert_eq!(canary.connections().await, 0);
}

/// From a target that may be reached to one that may not.
#[tokio::test]
async fn no_redirect_leads_there() {
    let canary = canary().await;
    for status in [301, 302, 303, 307, 308] {
        for location in LOCATIONS {
            let location = with_port(location, &canary);
            let expected = location.clone();
            let target = Target::start(move |mut socket| {
                let location = location.clone();
                async move {
                    read_request(&mut socket).await;
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
                    );
                    write(&mut socket, answer.as_bytes()).await;
                }
            })
            .await;
            let response = client("127.0.0.1/32").attempt(get(&target.url("/"))).await;
            let response = response.unwrap();
            assert_eq!(response.status, status);
            assert_eq!(response.headers[0], ("location".to_owned(), expected));
            assert_eq!(target.connections().await, 1);
        }
    }
    assert_eq!(canary.connections().await, 0);
}

/// Otherwise the tests above could not fail.
#[tokio::test]
async fn the_canary_is_reached_by_these_tries_if_they_are_allowed() {
    let canary = canary().await;
    let port = canary.address.port();
    let tries = [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1.2.3",
        "0",
    ];
    let mut urls: Vec<String> = tries.map(|host| format!("http://{host}:{port}/")).into();
    urls.push(format!("http://[::ffff:127.0.0.1]:{port}/"));
    if canary.address.is_ipv6() {
        urls.push(format!("http://[::1]:{port}/"));
    }
    let client = client("127.0.0.0/8,0.0.0.0/32,::1/128");
    for url in &urls {
        let answered = client.attempt(get(url)).await;
        assert_eq!(answered.map(|response| response.status), Ok(200), "{url}");
    }
    assert_eq!(canary.connections().await, urls.len());
}

#[tokio::test]
async fn the_corpus_is_large_and_says_nothing_twice() {
    let canary = canary().await;
    let mut all: Vec<String> = literal_urls(&canary);
    all.extend(REFUSED_AS_URL.iter().map(|url| with_port(url, &canary)));
    all.extend(NAMES.iter().map(|(name, _)| (*name).to_owned()));
    all.extend(
        LOCATIONS
            .iter()
            .map(|location| format!("redirect to {location}")),
    );
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    assert!(all.len() >= 200, "{}", all.len());
}
