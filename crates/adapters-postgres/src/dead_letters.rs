//! Dead letters, numbered in their order.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::TenantId;
use punctual_ports::{
    BatchResult, DeadLetter, DeadLetterPort, PortError, RecordOutcome, RemoveOutcome,
    StoredDeadLetter,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::PostgresTimerStore;
use crate::lane::{BEGIN_DURABLE, Parameter, transaction};
use crate::port_errors::Failure;
use crate::timer_store::reading::number;
use crate::timer_store::rows::{column, instant, unreadable};
use crate::values::{Instant, sql_limit, storable};

/// Dead letters as arrays; the first of each id.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    ids: Vec<String>,
    sources: Vec<String>,
    tenants: Vec<Option<String>>,
    payloads: Vec<Vec<u8>>,
    reasons: Vec<String>,
    failed: Vec<Instant>,
}

impl<'a> FromIterator<&'a DeadLetter> for Letters {
    fn from_iter<T: IntoIterator<Item = &'a DeadLetter>>(letters: T) -> Self {
        let mut seen = HashSet::new();
        let mut these = Self::default();
        for letter in letters {
            if !seen.insert(&letter.id) {
                continue;
            }
            these.ids.push(storable(&letter.id));
            these.sources.push(letter.origin.to_string());
            let tenant = letter.tenant_id.as_ref().map(TenantId::as_str);
            these.tenants.push(tenant.map(str::to_owned));
            these.payloads.push(letter.payload.clone());
            these.reasons.push(storable(&letter.reason));
            these.failed.push(Instant(letter.failed_at));
        }
        these
    }
}

impl Letters {
    pub(crate) fn params(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.ids, Type::TEXT_ARRAY),
            (&self.sources, Type::TEXT_ARRAY),
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.reasons, Type::TEXT_ARRAY),
            (&self.failed, Type::TIMESTAMPTZ_ARRAY),
        ]
    }
}

fn stored(row: &Row) -> Result<StoredDeadLetter, Failure> {
    let origin: &str = column(row, "source")?;
    let tenant: Option<&str> = column(row, "tenant_id")?;
    Ok(StoredDeadLetter {
        sequence: column::<i64>(row, "sequence")?.unsigned_abs(),
        dead_letter: DeadLetter {
            id: column(row, "id")?,
            origin: origin
                .parse()
                .map_err(|error| unreadable("source", error))?,
            tenant_id: tenant
                .map(str::parse)
                .transpose()
                .map_err(|error| unreadable("tenant_id", error))?,
            payload: column(row, "payload")?,
            reason: column(row, "reason")?,
            failed_at: instant(row, "failed_at")?,
        },
    })
}

#[async_trait]
impl DeadLetterPort for PostgresTimerStore {
    async fn record(&self, batch: Vec<DeadLetter>) -> BatchResult<RecordOutcome> {
        let (store, batch) = (self.clone(), Arc::new(batch));
        let letters = Arc::clone(&batch);
        let recorded: HashSet<String> = self
            .inner
            .write
            .run("record dead letters", move |session| {
                let (store, letters) = (store.clone(), Arc::clone(&letters));
                Box::pin(async move {
                    let letters: Letters = letters.iter().collect();
                    let text = store.inner.sql.record_dead_letters.as_str();
                    let statement = [(text, letters.params())];
                    let rows = transaction(&session, BEGIN_DURABLE, &statement).await?;
                    rows.iter().flatten().map(|row| column(row, "id")).collect()
                })
            })
            .await?;
        let mut seen = HashSet::new();
        let outcome = |letter: &DeadLetter| {
            let id = storable(&letter.id);
            let is_new = recorded.contains(&id) && seen.insert(id);
            Ok(if is_new {
                RecordOutcome::Recorded
            } else {
                RecordOutcome::AlreadyThere
            })
        };
        Ok(batch.iter().map(outcome).collect())
    }

    async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredDeadLetter>, PortError> {
        // Sequence numbers start at one, and none exceeds `i64::MAX`.
        let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let params = vec![number(after), number(sql_limit(limit))];
        self.read(
            "list dead letters",
            |sql| &sql.list_dead_letters,
            params,
            stored,
        )
        .await
    }

    async fn remove(&self, sequences: Vec<u64>) -> BatchResult<RemoveOutcome> {
        let known = sequences.iter().filter_map(|it| i64::try_from(*it).ok());
        let known: Vec<i64> = known.collect();
        let removed = self.query(
            &self.inner.write,
            "remove dead letters",
            BEGIN_DURABLE,
            |sql| &sql.remove_dead_letters,
            vec![(Box::new(known), Type::INT8_ARRAY)],
            |row| Ok(column::<i64>(row, "sequence")?.unsigned_abs()),
        );
        let mut removed: HashSet<u64> = removed.await?.into_iter().collect();
        let outcome = |sequence: u64| {
            Ok(if removed.remove(&sequence) {
                RemoveOutcome::Removed
            } else {
                RemoveOutcome::NotFound
            })
        };
        Ok(sequences.into_iter().map(outcome).collect())
    }
}
