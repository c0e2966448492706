//! An order and its reminder, in one transaction: both are there or both are not, whatever happens
//! between the two. The orders are rows of your own, in the same file as the timers.
//!
//! Run it with `cargo run --release -p punctual --example in_transaction`.

use std::error::Error;
use std::time::Duration;

use punctual::rusqlite::{Connection, TransactionBehavior};
use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};
use tokio::sync::mpsc;

const FILE: &str = "data/shop.db";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (fired, mut firings) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .sqlite(FILE)
        .on_due(move |due: DueTimeReached| {
            let told = fired.send(due);
            async move { Ok(told?) }
        })
        .build()
        .await?;
    let running = punctual.start().await?;

    let mut shop = Connection::open(FILE)?;
    shop.execute_batch(
        "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, paid INTEGER NOT NULL)",
    )?;
    for (order, is_valid) in [("order-1", true), ("order-2", false), ("order-3", true)] {
        match place(&punctual, &mut shop, order, is_valid) {
            Ok(()) => println!("{order} was placed, and its reminder with it"),
            Err(error) => println!("{order} was not placed, nor its reminder: {error}"),
        }
    }

    for _ in 0..2 {
        let due = firings.recv().await.ok_or("the engine is gone")?;
        let order: String = due.read()?;
        let select = "SELECT paid FROM orders WHERE id = ?1";
        let paid: bool = shop.query_row(select, [&order], |row| row.get(0))?;
        println!("{order}: {}", if paid { "thank you" } else { "please pay" });
    }
    running.shutdown().await?;
    Ok(())
}

/// Stores an order and its reminder together. A blocking call, as `rusqlite`'s are: a busy service
/// would make it on a blocking thread.
fn place(
    punctual: &Punctual,
    shop: &mut Connection,
    order: &str,
    is_valid: bool,
) -> Result<(), Box<dyn Error>> {
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT OR REPLACE INTO orders VALUES (?1, 0)", [order])?;
    let key = TimerKey::named(TenantId::default(), &format!("{order} {}", punctual.now()));
    let reminder = Timer::after(key, Duration::from_millis(300)).data(order)?;
    let _ = punctual.schedule_in(&transaction, reminder)?;
    if !is_valid {
        return Err("its address is wrong".into()); // dropping the transaction rolls both back
    }
    transaction.commit()?;
    Ok(())
}
