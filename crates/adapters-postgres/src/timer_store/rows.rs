//! Rows as timers.

use punctual_domain::{
    CorrelationId, Failures, ReachedTimer, Registration, ScheduledTimer, ServiceCallId, TenantId,
    TimerData, TimerEntry, TimerKey, Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::lane::Parameter;
use crate::port_errors::Failure;
use crate::values::Instant;

/// A column by its name.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, Failure> {
    row.try_get(name)
        .map_err(|error| Failure::Unreadable(format!("{name}: {error}")))
}

/// An instant.
pub(crate) fn instant(row: &Row, name: &str) -> Result<Timestamp, Failure> {
    column::<Instant>(row, name).map(|Instant(at)| at)
}

/// An instant that may be null.
pub(crate) fn instant_or_null(row: &Row, name: &str) -> Result<Option<Timestamp>, Failure> {
    Ok(column::<Option<Instant>>(row, name)?.map(|Instant(at)| at))
}

pub(crate) fn unreadable(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Unreadable(format!("{name}: {error}"))
}

pub(crate) fn key(row: &Row) -> Result<TimerKey, Failure> {
    let tenant: &str = column(row, "tenant_id")?;
    let tenant = TenantId::new(tenant).map_err(|error| unreadable("tenant_id", error))?;
    let call = ServiceCallId::from_uuid(column::<Uuid>(row, "service_call_id")?);
    Ok(TimerKey::new(tenant, call))
}

pub(crate) fn registration(row: &Row) -> Result<Registration, Failure> {
    Ok(Registration {
        registered_at: instant(row, "registered_at")?,
        due_at: instant(row, "due_at")?,
    })
}

pub(crate) fn timer(row: &Row) -> Result<ScheduledTimer, Failure> {
    let data: Option<&str> = column(row, "data")?;
    Ok(ScheduledTimer {
        key: key(row)?,
        correlation_id: CorrelationId::from_uuid(column(row, "correlation_id")?),
        registration: registration(row)?,
        data: data
            .map(TimerData::from_json)
            .transpose()
            .map_err(|error| unreadable("data", error))?,
    })
}

pub(crate) fn attempts(row: &Row) -> Result<u32, Failure> {
    Ok(u32::try_from(column::<i32>(row, "attempts")?).unwrap_or_default())
}

pub(crate) fn reached(row: &Row) -> Result<ReachedTimer, Failure> {
    Ok(ReachedTimer::restore(
        timer(row)?,
        instant(row, "reached_at")?,
    ))
}

pub(crate) fn entry(row: &Row) -> Result<TimerEntry, Failure> {
    let timer = timer(row)?;
    let failures = Failures {
        attempts: attempts(row)?,
        last_error: column(row, "last_error")?,
    };
    Ok(match instant_or_null(row, "reached_at")? {
        None => TimerEntry::Scheduled { timer, failures },
        Some(at) => TimerEntry::Reached {
            timer: ReachedTimer::restore(timer, at),
            failures,
        },
    })
}

/// Keys as the arrays of a statement's first two parameters.
#[derive(Debug, Default, Clone)]
pub(crate) struct Keys {
    pub(crate) tenants: Vec<String>,
    pub(crate) calls: Vec<Uuid>,
}

impl Keys {
    pub(crate) fn add(&mut self, key: &TimerKey) {
        self.tenants.push(key.tenant_id.as_str().to_owned());
        self.calls.push(key.service_call_id.as_uuid());
    }

    pub(crate) fn params(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.calls, Type::UUID_ARRAY),
        ]
    }
}

impl<'a> FromIterator<&'a TimerKey> for Keys {
    fn from_iter<T: IntoIterator<Item = &'a TimerKey>>(keys: T) -> Self {
        let mut these = Self::default();
        for key in keys {
            these.add(key);
        }
        these
    }
}
