//! Reading timers: one, or a tenant's.

use punctual_domain::TimerEntry;
use punctual_ports::{PageCursor, PortErrorKind, TimerPageQuery};
use serde::Serialize;

use super::output::{Answers, say_rest, table};
use super::{Session, described, key};
use crate::cli::{GetArgs, ListArgs, Output};
use crate::failure::Failure;
use crate::settings::Environment;

/// A page of a list, as in the HTTP API.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page<'a> {
    pub(super) items: &'a [TimerEntry],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

/// Prints one timer.
pub(crate) async fn get(args: GetArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let (key, name) = key(args.key)?;
    let session = Session::open_timers(&args.answer.database, environment).await?;
    let found = session.stores.persistence.find(key.clone()).await;
    session.close().await;
    let Some(timer) = found? else {
        let timer = described(&key, name.as_deref());
        return Err(Failure::failed(format!("there is no {timer}")));
    };
    Answers::open()?.timer(args.answer.output, &timer)
}

/// Lists a tenant's timers.
pub(crate) async fn list(args: ListArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let session = Session::open_timers(&args.page.answer.database, environment).await?;
    let query = TimerPageQuery {
        tenant_id: args.tenant,
        state: args.state,
        after: args.page.after.map(PageCursor),
        limit: args.page.limit,
    };
    let had_cursor = query.after.is_some();
    let page = session.stores.persistence.page(query).await;
    session.close().await;
    let page = page.map_err(|error| {
        if had_cursor && error.kind() == PortErrorKind::Rejected {
            Failure::usage("--after is no nextCursor of a list: give one as it was printed")
        } else {
            error.into()
        }
    })?;
    let next = page.next.as_ref().map(|cursor| cursor.0.as_str());
    let answer = Page {
        items: &page.timers,
        next_cursor: next,
    };
    Answers::open()?.show(args.page.answer.output, &answer, || table(&page.timers))?;
    if args.page.answer.output == Output::Table {
        say_rest(page.timers.is_empty(), next);
    }
    Ok(())
}
