//! `dead-letters`: lists and removes dead letters while the file is being served.

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore};
use punctual_domain::{DeadLetterOrigin, Timestamp};
use punctual_ports::{DeadLetter, DeadLetterPort};
use serde_json::{Value, json};

use crate::refusals::assert_refused;
use crate::running::Home;

/// Puts letters into the file, as somebody does who meets them.
fn record(home: &Home, payloads: &[&[u8]]) {
    let now = Timestamp::from_millis(1_000).unwrap();
    let dead_letters = payloads.iter().enumerate().map(|(n, payload)| DeadLetter {
        id: format!("letter-{n}"),
        origin: DeadLetterOrigin::Delivery {
            subject: "timer.commands.a".to_owned(),
            stream: "COMMANDS".to_owned(),
            consumer: "timer".to_owned(),
        },
        tenant_id: (n == 0).then(|| "a".parse().unwrap()),
        payload: payload.to_vec(),
        reason: "it is no envelope".to_owned(),
        failed_at: now,
    });
    let dead_letters = dead_letters.collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteTimerStore::open(&SqliteSettings::client(home.db()), now).unwrap();
        let recorded = store.record(dead_letters).await.unwrap();
        assert!(recorded.iter().all(Result::is_ok));
        store.close().await;
    });
}

fn sequences(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|it| it["sequence"].as_u64().unwrap()).collect()
}

#[test]
fn they_are_listed_and_removed_beside_whoever_serves() {
    let home = Home::new();
    let _serving = home.serve();
    assert_eq!(home.json("dead-letters"), json!({"items": []}));
    record(&home, &[b"{}", b"\xff\xfe", b"third"]);
    let all = home.json("dead-letters");
    let [first, second, third] = sequences(&all)[..] else {
        panic!("{all}");
    };
    assert_eq!(
        all["items"][0],
        json!({
            "sequence": first, "id": "letter-0", "source": "timer.commands.a on COMMANDS for timer",
            "tenantId": "a",
            "reason": "it is no envelope", "failedAt": "1970-01-01T00:00:01.000Z", "bytes": 2,
        })
    );
    assert_eq!(all["items"][1].get("tenantId"), None);

    let page = home.json("dead-letters --limit 2");
    assert_eq!(sequences(&page), [first, second]);
    assert_eq!(page["nextAfter"], second);
    let rest = home.json(&format!("dead-letters --after {second}"));
    assert_eq!(sequences(&rest), [third]);
    assert_eq!(rest.get("nextAfter"), None);

    let removed = home.json(&format!("dead-letters --remove {second}"));
    assert_eq!(removed, json!({"removed": second}));
    assert_eq!(sequences(&home.json("dead-letters")), [first, third]);
    let again = home.run(&format!("dead-letters --remove {second}"));
    let words = [format!("there is no dead letter {second}")];
    assert_refused("again", &again, 1, &[&words[0]]);
}

#[test]
fn what_they_say_is_shown_only_to_whoever_asks() {
    let home = Home::new();
    home.json("migrate");
    record(
        &home,
        &[
            b"{\"password\":1}",
            b"\xff\xfe",
            "ä".repeat(5_000).as_bytes(),
        ],
    );
    assert_eq!(home.json("dead-letters")["items"][0].get("payload"), None);
    let shown = home.json("dead-letters --payload");
    assert_eq!(shown["items"][0]["payload"], "{\"password\":1}");
    assert_eq!(shown["items"][1].get("payload"), None, "it is no text");
    let long = shown["items"][2]["payload"].as_str().unwrap();
    assert_eq!(long, format!("{}…", "ä".repeat(2_048)));
    let table = home.run("dead-letters --output table");
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("it is no envelope"), "{table:?}");
    assert!(!table.stdout.contains("password"), "{table:?}");
}

#[test]
fn a_file_that_is_not_there_and_a_number_that_is_none_are_named() {
    let home = Home::new();
    let missing = home.run("dead-letters");
    assert_refused("missing", &missing, 1, &["there is no database at"]);
    let wrong = home.run("dead-letters --remove first");
    assert_refused("wrong", &wrong, 2, &["--remove", "a whole number"]);
    assert!(!home.db().exists());
}
