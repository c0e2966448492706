//! Fair order of waiting attempts: tenants in turn, and within a tenant its hosts in turn.
//!
//! The index leads to the next tenant or host in one step, however many attempts wait in between.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{Cycle, TenantId, interleave};
use punctual_ports::{Execution, WaitingQuery};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::attempts::read_key;
use super::rows::{json, millis, readable, to_json};
use crate::call_sql;
use crate::claims::RowId;
use crate::timer_store::rows::{parsed, sql_limit};

/// Maximum number of tenants whose last host is remembered. Beyond that, all are cleared.
const MAX_TENANTS: usize = 10_000;

/// The last host of each tenant. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Turns {
    last_hosts: Arc<Mutex<HashMap<TenantId, String>>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, String>> {
        let hosts = self.last_hosts.lock();
        hosts.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last(&self, tenant: &TenantId) -> Option<String> {
        self.lock().get(tenant).cloned()
    }

    pub(super) fn note(&self, given: &[Execution]) {
        let mut hosts = self.lock();
        if hosts.len() > MAX_TENANTS {
            hosts.clear();
        }
        for execution in given {
            let host = execution.request.url.host_and_port();
            hosts.insert(execution.key.call.tenant_id.clone(), host);
        }
    }
}

/// What a query has found.
pub(super) enum Waiting {
    Some(Vec<Execution>),
    /// Nothing that it wants.
    NoneOfQuery,
    /// Nothing waits.
    None,
}

pub(super) fn waiting(
    connection: &Connection,
    turns: &Turns,
    query: &WaitingQuery,
) -> rusqlite::Result<Waiting> {
    if query.per_tenant == 0 || query.per_host == 0 {
        return Ok(Waiting::NoneOfQuery);
    }
    let connection = connection.unchecked_transaction()?;
    let tenants = tenants(&connection, query)?;
    // Leaves at least one slot for each of the other tenants.
    let wanted = query.limit.saturating_sub(tenants.len().saturating_sub(1));
    let wanted = wanted.min(query.per_tenant);
    let mut queues = Vec::with_capacity(tenants.len());
    for tenant in &tenants {
        let is_last = query
            .after_tenant
            .as_ref()
            .is_some_and(|it| it.as_str() == tenant);
        let last = Some(tenant).filter(|_| !is_last);
        let last = last.and_then(|tenant| turns.last(&TenantId::new(tenant).ok()?));
        let after = last.or_else(|| query.after_host.clone());
        queues.push(of_tenant(
            &connection,
            query,
            tenant,
            after.as_deref(),
            wanted,
        )?);
    }
    let chosen: Vec<RowId> = interleave(queues).take(query.limit).collect();
    let mut given = Vec::with_capacity(chosen.len());
    if !chosen.is_empty() {
        let mut statement = connection.prepare_cached(call_sql::ATTEMPTS)?;
        let mut rows = statement.query(params![to_json(&chosen)?])?;
        while let Some(row) = rows.next()? {
            given.extend(readable("attempt", read_execution(row))?);
        }
    }
    turns.note(&given);
    Ok(if !given.is_empty() {
        Waiting::Some(given)
    } else if connection
        .prepare_cached(call_sql::NEXT_TENANT)?
        .exists([""])?
    {
        Waiting::NoneOfQuery
    } else {
        Waiting::None
    })
}

/// Tenants with waiting attempts that the query wants, starting after the last one, at most one for
/// each slot.
fn tenants(connection: &Connection, query: &WaitingQuery) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(call_sql::NEXT_TENANT)?;
    let next = |after: &str| {
        let row = statement.query_row(params![after], |row| row.get(0));
        row.optional()
    };
    let is_wanted = |tenant: &str| {
        let mut without = query.without_tenants.iter();
        if without.any(|it| it.as_str() == tenant) {
            return Ok(false);
        }
        // Otherwise it would use up a slot without an attempt.
        let has_all = query.without_hosts.is_empty() && left_out(query, tenant).is_empty();
        Ok(has_all || !hosts(connection, query, tenant, None, 1)?.is_empty())
    };
    let after = query.after_tenant.as_ref().map(TenantId::as_str);
    round(after, query.limit, next, is_wanted)
}

/// The hosts that the query excludes for a tenant.
fn left_out<'a>(query: &'a WaitingQuery, tenant: &str) -> HashSet<&'a str> {
    let Ok(tenant) = TenantId::new(tenant) else {
        return HashSet::new();
    };
    let from = query.without.range((tenant.clone(), String::new())..);
    from.take_while(|(it, _)| *it == tenant)
        .map(|(_, host)| host.as_str())
        .collect()
}

/// The hosts of a tenant's waiting attempts, starting after the last one.
fn hosts(
    connection: &Connection,
    query: &WaitingQuery,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(call_sql::NEXT_HOST)?;
    let next = |after: &str| {
        let row = statement.query_row(params![tenant, after], |row| row.get(0));
        row.optional()
    };
    let left_out = left_out(query, tenant);
    let is_wanted = |host: &str| {
        let mut without = query.without_hosts.iter();
        Ok(!left_out.contains(host) && !without.any(|it| it == host))
    };
    round(after, limit, next, is_wanted)
}

/// A tenant's waiting attempts: one for each host in turn, then another for each, up to `wanted`.
fn of_tenant(
    connection: &Connection,
    query: &WaitingQuery,
    tenant: &str,
    after_host: Option<&str>,
    wanted: usize,
) -> rusqlite::Result<Vec<RowId>> {
    let hosts = hosts(connection, query, tenant, after_host, wanted)?;
    // Leaves at least one slot for each of the other hosts.
    let of_host = wanted.saturating_sub(hosts.len().saturating_sub(1));
    let of_host = sql_limit(of_host.min(query.per_host));
    let mut statement = connection.prepare_cached(call_sql::WAITING_FOR_HOST)?;
    let mut queues = Vec::with_capacity(hosts.len());
    for host in &hosts {
        let rows = statement.query_map(params![tenant, host, of_host], |row| row.get(0))?;
        queues.push(rows.collect::<rusqlite::Result<Vec<RowId>>>()?);
    }
    Ok(interleave(queues).take(wanted).collect())
}

/// The wanted values of one round, until the limit.
fn round(
    after: Option<&str>,
    limit: usize,
    mut next: impl FnMut(&str) -> rusqlite::Result<Option<String>>,
    is_wanted: impl Fn(&str) -> rusqlite::Result<bool>,
) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut cycle = Cycle::after(after.map(str::to_owned));
    while found.len() < limit
        && let Some(it) = cycle.next(|after| next(after.map_or("", String::as_str)))?
    {
        if is_wanted(&it)? {
            found.push(it);
        }
    }
    Ok(found)
}

fn read_execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    Ok(Execution {
        key: read_key(row)?,
        correlation_id: parsed(row, 3)?,
        request: json(row, 4)?,
        timeout: millis(row, 5)?,
        accepted_at: parsed(row, 6)?,
    })
}
