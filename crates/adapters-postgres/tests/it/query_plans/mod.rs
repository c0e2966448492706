//! Query plans of all statements, on a million timers: each uses an index, none scans a table or sorts the
//! backlog, whatever the planner believes of the tables, and with the dead rows of a held snapshot.

mod backlog;
mod calls;
mod execution;
mod explained;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use punctual_adapters_postgres::tokio_postgres::Client;
use punctual_adapters_postgres::tokio_postgres::types::{ToSql, Type};
use punctual_adapters_postgres::{
    BEGIN_DURABLE, BEGIN_QUICK, BEGIN_READ, ConnectionProbe, PostgresUrl, Statements,
};
use uuid::Uuid;

use crate::scratch::Scratch;
use crate::store::machine_clock;
use explained::Explained;

type Parameter = (Box<dyn ToSql + Sync + Send>, Type);

/// Number of timers in a batch, and limit of every list.
const BATCH: usize = 100;

/// A statement as the store runs it, and what it may read.
struct Expected {
    name: &'static str,
    begin: &'static str,
    params: Vec<Parameter>,
    /// All indexes that it may use.
    indexes: &'static [&'static str],
    /// The most rows that a node may read, or pass over.
    rows: u64,
    /// The most pages that it may read or write.
    pages: u64,
}

const KEY: &str = "timers_tenant_id_service_call_id_key";
const ID: &str = "timers_pkey";
const DUE: &str = "idx_timers_due_at";
const QUEUED: &str = "timer_queue_pkey";
const READY: &str = "idx_timer_queue_ready";
const TENANT_READY: &str = "idx_timer_queue_tenant_ready";
const RETRIED: &str = "idx_timer_queue_tenant_retried";
const FIRING: &str = "timer_firings_pkey";
const REACHED: &str = "idx_timer_firings_reached_at";
const CLAIM: &str = "timer_claims_pkey";
const LEASE: &str = "idx_timer_claims_lease_until";
const INSTANCE: &str = "instances_pkey";

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_finds_its_rows_through_an_index() {
    let Some(scratch) = backlog::load().await else {
        return;
    };
    let planner = Planner::connect(&scratch).await;
    planner.check("as it is", 0, 0).await;
    backlog::seem_empty(&scratch);
    planner.check("on tables that seem empty", 0, 0).await;
    backlog::forget_statistics(&scratch);
    planner
        .check("on unknown tables that seem empty", 0, 0)
        .await;

    let url = PostgresUrl::new(&scratch.url()).unwrap();
    let clock = machine_clock();
    let holder = ConnectionProbe::connect(&url, None, clock.as_ref())
        .await
        .unwrap();
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM dead_letters";
    holder.client().batch_execute(hold).await.unwrap();
    backlog::fire_many(&scratch);
    scratch.execute("VACUUM timer_queue, timer_claims");
    planner
        .check("beside a held snapshot", FIRED_UNTIL, DEAD)
        .await;
    scratch.execute("ANALYZE timer_queue, timer_claims, timer_firings");
    planner
        .check("beside a held snapshot, analyzed", FIRED_UNTIL, DEAD)
        .await;
}

/// A transaction of a caller's, which has not our settings.
const BARE: &str = "BEGIN";

/// What is not for every poll: it reads from the beginning of the queue, or of each tenant.
const READS_FROM_THE_BEGINNING: [&str; 3] = ["oldest_ready", "backlog", "claim_by_tenant"];

/// Number of dead rows beside the held snapshot.
const DEAD: u64 = 100_000;

/// Until this second all timers have fired, beside the held snapshot.
const FIRED_UNTIL: u64 = BEGINNING + 117_000;

/// Explains statements in transactions that are rolled back.
struct Planner {
    probe: ConnectionProbe,
    statements: Statements,
}

impl Planner {
    async fn connect(scratch: &Scratch) -> Self {
        let url = PostgresUrl::new(&scratch.url()).unwrap();
        let clock = machine_clock();
        let probe = ConnectionProbe::connect(&url, None, clock.as_ref());
        Self {
            probe: probe.await.unwrap(),
            statements: Statements::of("public"),
        }
    }

    fn client(&self) -> &Client {
        self.probe.client()
    }

    /// Checks all statements. Nothing is queued that is ready before the second `low`, where `dead_rows` are.
    async fn check(&self, when: &str, low: u64, dead_rows: u64) {
        let statements = self.statements.all();
        self.check_all(when, &statements, expected(low), dead_rows)
            .await;
    }

    async fn check_all(
        &self,
        when: &str,
        statements: &[(&'static str, &str)],
        expected: Vec<Expected>,
        dead_rows: u64,
    ) {
        let mut by_name: BTreeMap<_, _> = expected.iter().map(|it| (it.name, it)).collect();
        let mut wrong = Vec::new();
        for (name, text) in statements {
            let expected = by_name.remove(name);
            let expected = expected.unwrap_or_else(|| panic!("{name} has no line in the table"));
            let explained = self.explain(text, expected).await;
            if !expected.allows(&explained, dead_rows) {
                wrong.push(format!("{name} {when}:\n{}", explained.text));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        assert!(by_name.is_empty(), "{:?}", by_name.keys());
    }

    async fn explain(&self, text: &str, expected: &Expected) -> Explained {
        let client = self.client();
        client.batch_execute(expected.begin).await.unwrap();
        let remembered = "SET LOCAL punctual.lock_timeout = '1s'";
        client.batch_execute(remembered).await.unwrap();
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {text}");
        let params: Vec<_> = expected
            .params
            .iter()
            .map(|(value, kind)| (value.as_ref() as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        let rows = client.query_typed(&explain, &params).await;
        client.batch_execute("ROLLBACK").await.unwrap();
        let lines: Vec<String> = match rows {
            Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
            // It took too long, for example.
            Err(error) => vec![format!(
                "Seq Scan for ever: {error:?}  (actual rows=0 loops=1)"
            )],
        };
        Explained::parse(&lines)
    }
}

impl Expected {
    fn allows(&self, found: &Explained, dead_rows: u64) -> bool {
        // Each dead row is a page at most, and is met once or twice.
        let passes_dead_rows = READS_FROM_THE_BEGINNING.contains(&self.name);
        let dead = u64::from(passes_dead_rows) * 2 * dead_rows;
        let is_allowed = |index: &String| self.indexes.contains(&index.as_str());
        found.whole_scans.is_empty()
            && found.indexes.iter().all(is_allowed)
            && found.indexes.is_empty() == self.indexes.is_empty()
            // Where the planner expects one row, it compares each of a batch with each.
            && found.most_rows <= self.rows.max((BATCH * BATCH) as u64)
            && found.pages <= self.pages + dead
    }
}

/// The instant of the first due time.
const BEGINNING: u64 = 1_700_000_000;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn number(value: i64) -> Parameter {
    (Box::new(value), Type::INT8)
}

fn text(value: &str) -> Parameter {
    (Box::new(value.to_owned()), Type::TEXT)
}

fn time(second: u64) -> Parameter {
    (Box::new(at(second)), Type::TIMESTAMPTZ)
}

fn times(seconds: impl Iterator<Item = u64>) -> Parameter {
    (
        Box::new(seconds.map(at).collect::<Vec<_>>()),
        Type::TIMESTAMPTZ_ARRAY,
    )
}

/// No other clock than the server's.
fn servers_clock() -> Parameter {
    (Box::new(None::<SystemTime>), Type::TIMESTAMPTZ)
}

fn uuid(value: Uuid) -> Parameter {
    (Box::new(value), Type::UUID)
}

fn uuids(values: impl Iterator<Item = Uuid>) -> Parameter {
    (Box::new(values.collect::<Vec<_>>()), Type::UUID_ARRAY)
}

fn texts(values: impl Iterator<Item = String>) -> Parameter {
    (Box::new(values.collect::<Vec<_>>()), Type::TEXT_ARRAY)
}

fn numbers(values: impl Iterator<Item = i64>) -> Parameter {
    (Box::new(values.collect::<Vec<_>>()), Type::INT8_ARRAY)
}

fn lease() -> Parameter {
    (Box::new(8_000.0_f64), Type::FLOAT8)
}

/// Who is listed: by the server's clock, within fifteen seconds.
fn living() -> Vec<Parameter> {
    vec![
        servers_clock(),
        (Box::new(15_000.0_f64), Type::FLOAT8),
        number(1_000),
    ]
}

/// The timers of a batch: scheduled, and far from each other.
fn batch() -> impl Iterator<Item = u64> {
    let all = (0..).map(|it| it * 7_001 % 1_000_000);
    all.filter(|it| it % 20 != 7 && it % 10 != 9).take(BATCH)
}

fn ids() -> Parameter {
    numbers(batch().map(|it| it.cast_signed() + 1))
}

fn call(number: u64) -> Uuid {
    let text = format!("00000000-0000-7000-8000-{number:012}");
    text.parse().unwrap()
}

fn due(number: u64) -> u64 {
    BEGINNING + number * 7_919 % 1_000_000
}

fn keys() -> Vec<Parameter> {
    vec![
        texts(batch().map(|it| format!("tenant-{:04}", it / 1_000))),
        uuids(batch().map(call)),
    ]
}

/// The schedules of the batch.
fn firings() -> Vec<Parameter> {
    let registered = times(batch().map(|_| 1_600_000_000));
    with(keys(), [registered, times(batch().map(due))])
}

/// The claims of the batch.
fn claims() -> Vec<Parameter> {
    let places: Vec<i32> = (0..).take(BATCH).collect();
    let places: Parameter = (Box::new(places), Type::INT4_ARRAY);
    let tokens = numbers(batch().map(|_| 7));
    let mut params = vec![places];
    params.extend(firings());
    with(params, [tokens])
}

fn with(mut params: Vec<Parameter>, more: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
    params.extend(more);
    params
}

/// New timers, and what belongs to their inserts.
fn new_timers() -> Vec<Parameter> {
    let numbers = || (1_000_000..).take(BATCH);
    let sent: Vec<Option<SystemTime>> = vec![None; BATCH];
    vec![
        texts(numbers().map(|_| "tenant-0000".to_owned())),
        uuids(numbers().map(call)),
        uuids(numbers().map(call)),
        times(numbers()),
        (Box::new(sent), Type::TIMESTAMPTZ_ARRAY),
        texts(numbers().map(|_| "{}".to_owned())),
        servers_clock(),
    ]
}

/// One line a statement. Nothing is queued that is ready before the second `low`.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn expected(low: u64) -> Vec<Expected> {
    let line = |name, begin, indexes, rows, pages, params| Expected {
        name,
        begin,
        params,
        indexes,
        rows,
        pages,
    };
    let limit = || number(100);
    // About eighty timers are due, or about 400 000.
    let first = low.max(BEGINNING);
    let few = || vec![time(low), time(first + 100), servers_clock()];
    let many = || vec![time(low), time(BEGINNING + 500_000), servers_clock()];
    let claim = || [limit(), number(9), uuid(Uuid::max()), lease()];
    // Every tenant but a few.
    let excluded = || texts((0..990).map(|it| format!("tenant-{it:04}")));
    let one = || vec![text("tenant-0500"), uuid(call(500_001))];
    let page = || vec![text("tenant-0500"), time(first), number(0), limit()];
    let old = || vec![time(BEGINNING + 500_000), limit()];
    let batch_rows = BATCH as u64;
    vec![
        line("insert_in", BARE, &[], batch_rows, 4_000, new_timers()),
        line(
            "insert_owned_in",
            BARE,
            &["service_calls_pkey"],
            batch_rows,
            4_000,
            new_timers(),
        ),
        line("clock_in", BARE, &[], 1, 0, vec![servers_clock()]),
        line(
            "database",
            BEGIN_READ,
            &["pg_database_datname_index"],
            1,
            10,
            vec![text("public.timers")],
        ),
        line("bound_waits", BARE, &[], 1, 0, vec![]),
        line("restore_waits", BARE, &[], 1, 0, vec![]),
        line(
            "lock_free_queue",
            BEGIN_QUICK,
            &[KEY, QUEUED],
            batch_rows,
            2_000,
            keys(),
        ),
        line(
            "mark_free",
            BEGIN_QUICK,
            &[KEY, QUEUED, CLAIM],
            batch_rows,
            9_000,
            with(firings(), [times(batch().map(due))]),
        ),
        line(
            "insert",
            BEGIN_DURABLE,
            &[],
            batch_rows,
            4_000,
            new_timers(),
        ),
        line(
            "insert_owned",
            BEGIN_DURABLE,
            &["service_calls_pkey"],
            batch_rows,
            4_000,
            new_timers(),
        ),
        line(
            "lock_timers",
            BEGIN_DURABLE,
            &[KEY, ID],
            batch_rows,
            2_000,
            keys(),
        ),
        line(
            "lock_queue",
            BEGIN_DURABLE,
            &[KEY, QUEUED],
            batch_rows,
            2_000,
            keys(),
        ),
        line(
            "gone",
            BEGIN_DURABLE,
            &["submissions_pkey"],
            batch_rows,
            2_000,
            keys(),
        ),
        line("clock", BEGIN_DURABLE, &[], 1, 0, vec![servers_clock()]),
        line(
            "reschedule_timers",
            BEGIN_DURABLE,
            &[ID],
            batch_rows,
            9_000,
            vec![
                ids(),
                uuids(batch().map(call)),
                times(batch().map(due)),
                times(batch().map(due)),
                texts(batch().map(|_| "{}".to_owned())),
            ],
        ),
        line(
            "requeue",
            BEGIN_DURABLE,
            &[],
            batch_rows,
            9_000,
            vec![
                ids(),
                times(batch().map(due)),
                times(batch().map(due)),
                texts(batch().map(|it| format!("tenant-{:04}", it / 1_000))),
            ],
        ),
        line(
            "remove_firings",
            BEGIN_DURABLE,
            &[FIRING],
            batch_rows,
            1_000,
            vec![ids()],
        ),
        line(
            "remove_claims",
            BEGIN_DURABLE,
            &[CLAIM],
            batch_rows,
            1_000,
            vec![ids()],
        ),
        line(
            "claims_of",
            BEGIN_DURABLE,
            &[KEY, CLAIM],
            batch_rows + 1,
            2_000,
            with(keys(), [servers_clock(), lease()]),
        ),
        line(
            "record_epoch",
            BEGIN_DURABLE,
            &[],
            1,
            100,
            vec![uuid(Uuid::nil()), servers_clock()],
        ),
        line(
            "delete_timers",
            BEGIN_DURABLE,
            &[ID],
            batch_rows,
            9_000,
            vec![ids(), times(batch().map(due))],
        ),
        line(
            "unqueue",
            BEGIN_DURABLE,
            &[QUEUED],
            batch_rows,
            2_000,
            vec![ids()],
        ),
        line(
            "mark",
            BEGIN_QUICK,
            &[KEY, QUEUED, CLAIM],
            batch_rows,
            9_000,
            with(firings(), [times(batch().map(due))]),
        ),
        line(
            "existing",
            BEGIN_READ,
            &[KEY, ID, QUEUED],
            batch_rows,
            3_000,
            keys(),
        ),
        line(
            "current_claims",
            BEGIN_QUICK,
            &[KEY, QUEUED, CLAIM],
            batch_rows,
            3_000,
            claims(),
        ),
        line(
            "retry",
            BEGIN_QUICK,
            &[QUEUED],
            batch_rows,
            9_000,
            vec![
                ids(),
                times(batch().map(due)),
                texts(batch().map(|_| "no".to_owned())),
            ],
        ),
        line(
            "give_up",
            BEGIN_DURABLE,
            &[QUEUED],
            batch_rows,
            9_000,
            vec![
                ids(),
                times(batch().map(due)),
                texts(batch().map(|_| "no".to_owned())),
            ],
        ),
        line(
            "release",
            BEGIN_QUICK,
            &[KEY, QUEUED, CLAIM],
            batch_rows,
            3_000,
            claims(),
        ),
        line(
            "renew",
            BEGIN_QUICK,
            &[KEY, QUEUED, CLAIM],
            batch_rows,
            9_000,
            with(
                claims(),
                [
                    servers_clock(),
                    lease(),
                    numbers(batch().map(|_| 7)),
                    uuid(Uuid::max()),
                ],
            ),
        ),
        line(
            "release_lost",
            BEGIN_QUICK,
            &[LEASE, CLAIM],
            11_000,
            1_000,
            vec![uuid(Uuid::max()), numbers([8].into_iter()), servers_clock()],
        ),
        line(
            "unclaim",
            BEGIN_QUICK,
            &[CLAIM],
            batch_rows,
            1_000,
            vec![ids(), number(8)],
        ),
        line(
            "claim_all",
            BEGIN_QUICK,
            &[READY, CLAIM, ID],
            batch_rows + 1,
            9_000,
            with(few(), claim()),
        ),
        line(
            "claim_shared",
            BEGIN_QUICK,
            &[READY, TENANT_READY, QUEUED, CLAIM, ID],
            4 * batch_rows,
            9_000,
            with(with(many(), claim()), [text("tenant-0500"), number(32)]),
        ),
        line(
            "claim_beside",
            BEGIN_QUICK,
            &[READY, QUEUED, CLAIM, ID],
            batch_rows + 1_001,
            9_000,
            with(with(many(), claim()), [excluded(), number(1_000)]),
        ),
        line(
            "claim_by_tenant",
            BEGIN_QUICK,
            &[READY, TENANT_READY, QUEUED, CLAIM, ID],
            2 * batch_rows + 1_024,
            30_000,
            with(
                with(many(), claim()),
                [text("tenant-0500"), number(1_024), excluded()],
            ),
        ),
        line(
            "next_due",
            BEGIN_QUICK,
            &[READY, CLAIM],
            batch_rows,
            9_000,
            few(),
        ),
        line(
            "next_due_or_free",
            BEGIN_QUICK,
            &[READY, CLAIM, LEASE],
            batch_rows,
            9_000,
            with(few(), [uuid(Uuid::nil())]),
        ),
        line(
            "next_due_beside",
            BEGIN_QUICK,
            &[READY, CLAIM],
            1_000,
            20_000,
            with(many(), [excluded()]),
        ),
        line(
            "oldest_ready",
            BEGIN_READ,
            &[READY, CLAIM],
            10,
            100,
            vec![servers_clock()],
        ),
        line("find", BEGIN_READ, &[KEY, QUEUED, FIRING], 1, 50, one()),
        line(
            "find_due",
            BEGIN_READ,
            &[TENANT_READY, RETRIED, ID],
            2 * batch_rows,
            2_000,
            vec![text("tenant-0500"), time(BEGINNING + 500_000), limit()],
        ),
        line(
            "find_by_correlation",
            BEGIN_READ,
            &["idx_timers_correlation_id", QUEUED, FIRING],
            batch_rows,
            200,
            vec![uuid(call(1)), text(""), uuid(Uuid::nil()), limit()],
        ),
        line(
            "page_all",
            BEGIN_READ,
            &[DUE, QUEUED, FIRING],
            2 * batch_rows,
            2_000,
            page(),
        ),
        line(
            "page_reached",
            BEGIN_READ,
            &[DUE, FIRING, REACHED],
            2_000,
            9_000,
            page(),
        ),
        line(
            "page_scheduled",
            BEGIN_READ,
            &[TENANT_READY, RETRIED, ID],
            2 * batch_rows,
            2_000,
            page(),
        ),
        line(
            "fired_since",
            BEGIN_READ,
            &[REACHED, ID],
            2 * batch_rows,
            2_000,
            vec![
                time(first),
                (Box::new(None::<SystemTime>), Type::TIMESTAMPTZ),
                text(""),
                uuid(Uuid::nil()),
                limit(),
            ],
        ),
        line("backlog", BEGIN_READ, &[READY], batch_rows, 9_000, old()),
        line(
            "purge_reached",
            BEGIN_DURABLE,
            &[REACHED, ID, FIRING],
            batch_rows,
            9_000,
            old(),
        ),
        line(
            "purge_tombstones",
            BEGIN_DURABLE,
            &["idx_timers_deleted_at", ID],
            batch_rows,
            9_000,
            old(),
        ),
        line(
            "record_dead_letters",
            BEGIN_DURABLE,
            &[],
            batch_rows,
            2_000,
            vec![
                texts(batch().map(|it| format!("new-{it}"))),
                texts(batch().map(|_| "timer".to_owned())),
                texts(batch().map(|_| "a".to_owned())),
                (
                    Box::new(batch().map(|_| Vec::<u8>::new()).collect::<Vec<_>>()),
                    Type::BYTEA_ARRAY,
                ),
                texts(batch().map(|_| "a".to_owned())),
                times(batch()),
            ],
        ),
        line(
            "list_dead_letters",
            BEGIN_READ,
            &["dead_letters_pkey"],
            batch_rows,
            200,
            vec![number(5_000), limit()],
        ),
        line(
            "remove_dead_letters",
            BEGIN_DURABLE,
            &["dead_letters_pkey"],
            batch_rows,
            1_000,
            vec![numbers((1..).take(BATCH))],
        ),
        line(
            "load_positions",
            BEGIN_READ,
            &["bus_positions_pkey"],
            batch_rows,
            200,
            vec![text("stream-1")],
        ),
        line(
            "save_position",
            BEGIN_DURABLE,
            &[],
            1,
            100,
            vec![
                text("stream-1"),
                uuid(Uuid::nil()),
                text(""),
                number(1),
                text(""),
                time(1),
                time(1),
            ],
        ),
        line(
            "keep_id",
            BEGIN_DURABLE,
            &[],
            1,
            100,
            vec![uuid(Uuid::nil())],
        ),
        line(
            "own_republication",
            BEGIN_QUICK,
            &[],
            1,
            100,
            vec![
                text("stream-1"),
                uuid(Uuid::nil()),
                servers_clock(),
                lease(),
            ],
        ),
        line(
            "record_heartbeat",
            BEGIN_QUICK,
            &[],
            1,
            100,
            vec![
                uuid(Uuid::nil()),
                text("host 7"),
                text("0.1.0"),
                text("timer"),
                servers_clock(),
                number(0),
            ],
        ),
        line(
            "list_instances",
            BEGIN_READ,
            &[LEASE, INSTANCE],
            batch_rows,
            200,
            living(),
        ),
        line(
            "list_instances_of_calls",
            BEGIN_READ,
            &[
                LEASE,
                INSTANCE,
                "idx_http_execution_log_open",
                "idx_outbox_claims_lease_until",
            ],
            batch_rows,
            200,
            living(),
        ),
        line(
            "list_instances_of_attempts",
            BEGIN_READ,
            &[
                INSTANCE,
                "idx_http_execution_log_open",
                "idx_outbox_claims_lease_until",
            ],
            batch_rows,
            200,
            living(),
        ),
        line(
            "forget_instances",
            BEGIN_QUICK,
            &[INSTANCE],
            batch_rows,
            100,
            vec![uuid(Uuid::nil()), servers_clock()],
        ),
        line(
            "notify",
            BEGIN_READ,
            &[],
            1,
            100,
            vec![text("a"), text("b")],
        ),
        line(
            "probe",
            BEGIN_DURABLE,
            &["dead_letters_pkey"],
            1,
            10,
            vec![],
        ),
        line(
            "forget_positions",
            BEGIN_DURABLE,
            &["bus_positions_pkey"],
            batch_rows,
            200,
            vec![text("stream-1"), uuid(Uuid::nil()), time(1)],
        ),
    ]
}
