//! Fair order of waiting attempts: tenants in turn, and within a tenant its hosts in turn.
//!
//! The index leads to the next tenant or host in one step, however many attempts wait in between.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{CorrelationId, TenantId};
use punctual_ports::{Execution, WaitingQuery};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Calls;
use super::attempts::read_key;
use super::rows::{json, millis, readable};
use crate::lane::{Parameter, Session, Statement};
use crate::port_errors::Failure;
use crate::timer_store::rows::{column, instant};
use crate::values::sql_limit;

/// Maximum number of tenants whose last host is remembered. Beyond that, all are cleared.
const MAX_TENANTS: usize = 10_000;
/// How many tenants are visited besides one for each slot: some may have nothing that is wanted.
const SPARE_TENANTS: usize = 64;
/// The least number of hosts, and of attempts, that each tenant is asked for. Together they are asked for a few
/// times what is wanted, so that a claim costs no more where there are many tenants.
const LEAST_SHARE: usize = 16;

/// The last host of each tenant, which belongs to the instance. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Turns {
    last_hosts: Arc<Mutex<HashMap<TenantId, String>>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, String>> {
        let hosts = self.last_hosts.lock();
        hosts.unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, given: &[Execution]) {
        let mut hosts = self.lock();
        if hosts.len() > MAX_TENANTS {
            hosts.clear();
        }
        for execution in given {
            let host = execution.request.url.host_and_port();
            hosts.insert(execution.key.call.tenant_id.clone(), host);
        }
    }

    /// The host after which each of these tenants goes on; empty for the beginning.
    fn after(&self, tenants: &[String], query: &WaitingQuery) -> Vec<String> {
        let hosts = self.lock();
        let after = |tenant: &String| {
            let last = query.after_tenant.as_ref();
            let is_last = last.is_some_and(|it| it.as_str() == tenant);
            let id = TenantId::new(tenant).ok().filter(|_| !is_last);
            let host = id.and_then(|id| hosts.get(&id).cloned());
            host.or_else(|| query.after_host.clone())
                .unwrap_or_default()
        };
        tenants.iter().map(after).collect()
    }
}

/// What is left out, as parameters.
struct LeftOut {
    tenants: Vec<String>,
    hosts: Vec<String>,
    pair_tenants: Vec<String>,
    pair_hosts: Vec<String>,
}

impl LeftOut {
    fn of(query: &WaitingQuery) -> Self {
        let text = |tenant: &TenantId| tenant.as_str().to_owned();
        let pairs = query.without.iter();
        let (pair_tenants, pair_hosts) = pairs
            .map(|(tenant, host)| (text(tenant), host.clone()))
            .unzip();
        Self {
            tenants: query.without_tenants.iter().map(text).collect(),
            hosts: query.without_hosts.clone(),
            pair_tenants,
            pair_hosts,
        }
    }
}

/// The statements before and after those of turns are the caller's: it has begun a transaction.
pub(super) async fn waiting(
    calls: &Calls,
    session: &Session,
    query: &WaitingQuery,
) -> Result<Vec<Execution>, Failure> {
    let mut given = Vec::new();
    if query.per_tenant == 0 || query.per_host == 0 || query.limit == 0 {
        return Ok(given);
    }
    let left_out = LeftOut::of(query);
    let start = query.after_tenant.as_ref().map_or("", TenantId::as_str);
    let visited = query.limit.saturating_add(SPARE_TENANTS);
    let (mut from, mut end, mut has_more) = (start.to_owned(), None, true);
    // More than once only if many tenants have nothing that is wanted.
    while has_more && given.len() < query.limit {
        let mut tenants = Vec::new();
        while has_more && tenants.len() < visited {
            let wanted = visited - tenants.len();
            let part = tenants_after(calls, session, &from, end, &left_out, wanted).await?;
            if part.len() >= wanted {
                from = part.last().cloned().unwrap_or_default();
            } else if end.is_none() && !start.is_empty() {
                (from, end) = (String::new(), Some(start));
            } else {
                has_more = false;
            }
            tenants.extend(part);
        }
        let left = query.limit - given.len();
        given.extend(of_tenants(calls, session, query, &tenants, &left_out, left).await?);
    }
    calls.turns.note(&given);
    Ok(given)
}

/// The tenants with waiting attempts after one, up to an end.
async fn tenants_after(
    calls: &Calls,
    session: &Session,
    after: &str,
    end: Option<&str>,
    left_out: &LeftOut,
    limit: usize,
) -> Result<Vec<String>, Failure> {
    let limit = sql_limit(limit);
    let mut params: Vec<Parameter<'_>> = vec![
        (&after, Type::TEXT),
        (&left_out.tenants, Type::TEXT_ARRAY),
        (&limit, Type::INT8),
    ];
    let text = match &end {
        Some(end) => {
            params.push((end, Type::TEXT));
            &calls.sql.tenants_up_to
        }
        None => &calls.sql.tenants_after,
    };
    let rows = session.client.query_typed(text, &params).await?;
    rows.iter().map(|row| column(row, "tenant_id")).collect()
}

async fn of_tenants(
    calls: &Calls,
    session: &Session,
    query: &WaitingQuery,
    tenants: &[String],
    left_out: &LeftOut,
    limit: usize,
) -> Result<Vec<Execution>, Failure> {
    if tenants.is_empty() {
        return Ok(Vec::new());
    }
    let after_hosts = calls.turns.after(tenants, query);
    // One tenant may have all that is wanted; many are asked for a part of it each.
    let wanted = limit.min(query.per_tenant);
    let share = (4 * limit / tenants.len()).max(LEAST_SHARE);
    let (hosts, of_host) = (wanted.min(share), wanted.min(share).min(query.per_host));
    let [hosts, of_host, of_tenant, limit] = [hosts, of_host, wanted, limit].map(sql_limit);
    let params: Vec<Parameter<'_>> = vec![
        (&tenants, Type::TEXT_ARRAY),
        (&after_hosts, Type::TEXT_ARRAY),
        (&left_out.hosts, Type::TEXT_ARRAY),
        (&left_out.pair_tenants, Type::TEXT_ARRAY),
        (&left_out.pair_hosts, Type::TEXT_ARRAY),
        (&hosts, Type::INT8),
        (&of_host, Type::INT8),
        (&of_tenant, Type::INT8),
        (&limit, Type::INT8),
    ];
    let statement: Statement<'_> = (&calls.sql.in_turn, params);
    let rows = session
        .client
        .query_typed(statement.0, &statement.1)
        .await?;
    let read = rows.iter().map(read_execution);
    Ok(read.filter_map(|read| readable("attempt", read)).collect())
}

fn read_execution(row: &Row) -> Result<Execution, Failure> {
    Ok(Execution {
        key: read_key(row)?,
        correlation_id: CorrelationId::from_uuid(column(row, "correlation_id")?),
        request: json(row, "request_spec")?,
        timeout: millis(row, "timeout_ms")?,
        accepted_at: instant(row, "started_at")?,
    })
}
