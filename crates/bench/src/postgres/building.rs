//! Filling a database: with rows that the server makes itself, which is the fastest way into it.

use punctual_adapters_postgres::Role;
use punctual_adapters_postgres::tokio_postgres::Client;
use punctual_adapters_system::SystemClock;

use super::server::{connect, open};
use crate::Outcome;
use crate::databases::{Filling, Owner, Recipe};
use crate::rows::tenants;

/// The tables that hold the timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    /// Those of the store, made by its migrations.
    Ours,
    /// One table with a state, as a plain queue has it: the columns and indexes of the store on SQLite.
    OneTable,
}

const ONE_TABLE: &str = "
CREATE TABLE timer_schedules (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE \"C\" NOT NULL,
    service_call_id uuid NOT NULL,
    correlation_id uuid NOT NULL,
    due_at timestamptz(3) NOT NULL,
    registered_at timestamptz(3) NOT NULL,
    reached_at timestamptz(3),
    state text NOT NULL DEFAULT 'Scheduled' CHECK (state IN ('Scheduled', 'Reached')),
    data text,
    attempts integer NOT NULL DEFAULT 0,
    retry_at timestamptz(3),
    UNIQUE (tenant_id, service_call_id)
);
CREATE INDEX idx_due_at ON timer_schedules (tenant_id, state, due_at);
CREATE INDEX idx_correlation_id ON timer_schedules (correlation_id);
CREATE INDEX idx_ready ON timer_schedules (coalesce(retry_at, due_at)) WHERE state = 'Scheduled';
CREATE INDEX idx_reached_at ON timer_schedules (reached_at) WHERE state = 'Reached';
";

/// The due rows spread evenly among the others; what is due became so within an hour, and what is not
/// comes two hours to 30 days from now. Ids are in the order of time, as those of version 7 are.
const TIMERS: &str = "
INSERT INTO %table (tenant_id, service_call_id, correlation_id, due_at, registered_at)
SELECT n.name,
    (lpad(to_hex(1790000000000 + g.i), 12, '0') || '7' || substr(md5(random()::text), 1, 19))::uuid,
    gen_random_uuid(),
    CASE WHEN g.is_due THEN now() - random() * interval '1 hour'
        ELSE now() + interval '2 hours' + random() * interval '30 days' END,
    now() - interval '2 hours'
FROM (SELECT i, is_due,
        CASE WHEN is_due AND %one THEN 1 ELSE 1 + floor(random() * %tenants)::int END AS number
    FROM (SELECT i, i * %due / %rows <> (i + 1) * %due / %rows AS is_due
        FROM generate_series(0, %rows::bigint - 1) AS i OFFSET 0) AS i OFFSET 0) AS g
JOIN names AS n ON n.number = g.number";

const QUEUE: &str = "
INSERT INTO timer_queue (timer_id, ready_at, registered_at, due_at, tenant_id)
SELECT id, due_at, registered_at, due_at, tenant_id FROM timers ORDER BY id";

/// The indexes that are no constraint, and how to make them again.
const INDEXES: &str = "
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i
WHERE i.indrelid = ANY(ARRAY[to_regclass('timers'), to_regclass('timer_queue'), to_regclass('timer_schedules')])
    AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)
    AND (SELECT relkind FROM pg_class WHERE oid = i.indrelid) = 'r'";

/// Makes the tables and fills them.
pub(super) async fn build(
    url: &str,
    recipe: Recipe,
    layout: Layout,
    clock: &SystemClock,
) -> Outcome<()> {
    let client = connect(url).await?;
    let tables = match layout {
        Layout::Ours => {
            open(url, Role::Timer, clock).await?.close().await;
            vec!["timers", "timer_queue"]
        }
        Layout::OneTable => {
            client.batch_execute(ONE_TABLE).await?;
            vec!["timer_schedules"]
        }
    };
    let indexes = match recipe.filling {
        Filling::RowByRow => String::new(),
        Filling::Bulk => drop_indexes(&client).await?,
    };
    let names: Vec<String> = tenants(recipe.tenants)?
        .iter()
        .map(|tenant| tenant.as_str().to_owned())
        .collect();
    client
        .batch_execute(
            "SET maintenance_work_mem = '512MB'; SET synchronous_commit = off; SELECT setseed(0.42);
             CREATE TEMP TABLE names (number int, name text)",
        )
        .await?;
    let insert = "INSERT INTO names SELECT u.number, u.name
        FROM unnest($1::text[]) WITH ORDINALITY AS u (name, number)";
    client.execute(insert, &[&names]).await?;
    let fill = TIMERS
        .replace("%table", tables[0])
        .replace("%one", &(recipe.owner == Owner::One).to_string())
        .replace("%tenants", &recipe.tenants.to_string())
        .replace("%due", &recipe.due.to_string())
        .replace("%rows", &recipe.rows.to_string());
    client.batch_execute(&fill).await?;
    if layout == Layout::Ours {
        client.batch_execute(QUEUE).await?;
    }
    client.batch_execute(&indexes).await?;
    for table in tables {
        let tidy = format!("VACUUM (FREEZE, ANALYZE) {table}");
        client.batch_execute(&tidy).await?;
    }
    Ok(())
}

async fn drop_indexes(client: &Client) -> Outcome<String> {
    let mut again = String::new();
    for row in client.query(INDEXES, &[]).await? {
        let (name, definition): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        client.batch_execute(&format!("DROP INDEX {name}")).await?;
        again = again + &definition + ";";
    }
    Ok(again)
}
