//! An order and its reminder, in one transaction on PostgreSQL: both are there or both are not, whatever
//! happens between the two. The orders are rows of your own, in the same database as the timers.
//!
//! Run it with `DATABASE_URL=postgres://me@localhost/shop cargo run --release -p punctual --features postgres
//! --example postgres_transaction`.

use std::error::Error;
use std::time::Duration;

use punctual::tokio_postgres::{self, Client, NoTls};
use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a database")?;
    let (fired, mut firings) = mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .postgres(&url)
        .on_due(move |due: DueTimeReached| {
            let told = fired.send(due);
            async move { Ok(told?) }
        })
        .build()
        .await?;
    let running = punctual.start().await?;

    let (mut shop, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    shop.batch_execute(
        "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, paid boolean NOT NULL)",
    )
    .await?;
    for (order, is_valid) in [("order-1", true), ("order-2", false), ("order-3", true)] {
        match place(&punctual, &mut shop, order, is_valid).await {
            Ok(()) => println!("{order} was placed, and its reminder with it"),
            Err(error) => println!("{order} was not placed, nor its reminder: {error}"),
        }
    }

    for _ in 0..2 {
        let due = firings.recv().await.ok_or("the engine is gone")?;
        let order: String = due.read()?;
        let select = "SELECT paid FROM orders WHERE id = $1";
        let paid: bool = shop.query_one(select, &[&order]).await?.get(0);
        println!("{order}: {}", if paid { "thank you" } else { "please pay" });
    }
    running.shutdown().await?;
    Ok(())
}

/// Stores an order and its reminder together.
async fn place(
    punctual: &Punctual,
    shop: &mut Client,
    order: &str,
    is_valid: bool,
) -> Result<(), Box<dyn Error>> {
    let transaction = shop.transaction().await?;
    let insert =
        "INSERT INTO orders VALUES ($1, false) ON CONFLICT (id) DO UPDATE SET paid = false";
    transaction.execute(insert, &[&order]).await?;
    let key = TimerKey::named(TenantId::default(), &format!("{order} {}", punctual.now()));
    let reminder = Timer::after(key, Duration::from_millis(300)).data(order)?;
    let _ = punctual.schedule_in(&transaction, reminder).await?;
    if !is_valid {
        return Err("its address is wrong".into()); // dropping the transaction rolls both back
    }
    transaction.commit().await?;
    Ok(())
}
