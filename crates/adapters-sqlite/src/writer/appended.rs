//! What a transaction appends to the outbox or accepts, and how it reaches those who work on it without
//! being read.

use punctual_domain::Timestamp;
use punctual_ports::Execution;
use rusqlite::{Connection, OptionalExtension};

use super::Units;
use crate::call_sql;
use crate::call_store::{HandedOver, Queues};
use crate::timer_store::rows::parsed;

/// The last message of the outbox, as far as the writer's thread knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastMessage {
    /// `None` before its first message.
    number: Option<i64>,
    created_at: Timestamp,
}

impl LastMessage {
    pub(super) const UNKNOWN: Self = Self {
        number: None,
        created_at: Timestamp::MIN,
    };
}

/// The messages of a transaction.
pub(crate) struct Appended {
    pub(super) last: LastMessage,
    /// Whether `last` covers the messages of other programs. Otherwise it has to be read.
    covers_others: bool,
    is_wanted: bool,
    /// Accepted attempts.
    accepted: Vec<Execution>,
    /// `None` if they are not all known, or do not directly follow those of the commit before.
    messages: Option<Vec<HandedOver>>,
}

impl Appended {
    /// Numbers tell whether anybody else has appended, so that the last message need not be read; once
    /// somebody has, the group is repeated with protected units.
    pub(super) fn after(last: LastMessage, units: Units, queues: &Queues) -> Self {
        Self {
            last,
            covers_others: units == Units::Bare && last.number.is_some(),
            is_wanted: queues.outbox.is_used(),
            accepted: Vec::new(),
            messages: Some(Vec::new()),
        }
    }

    /// As [`Transaction::created_at`](super::Transaction::created_at).
    pub(super) fn created_at(
        &mut self,
        connection: &Connection,
        written_at: Timestamp,
    ) -> rusqlite::Result<Timestamp> {
        if !self.covers_others {
            let mut statement = connection.prepare_cached(call_sql::LAST_CREATED)?;
            // An unreadable time is not ours, and no message sorts after it.
            let last = statement
                .query_row([], |row| Ok(parsed(row, 0).ok()))
                .optional()?;
            let last: Option<Timestamp> = last.flatten();
            self.last.created_at =
                last.map_or(self.last.created_at, |last| last.max(self.last.created_at));
            self.covers_others = true;
        }
        Ok(self.last.created_at.max(written_at))
    }

    /// Adds a message, if it is to be published; false if its number shows that another program's are before
    /// it.
    pub(super) fn add(
        &mut self,
        (number, created_at): (i64, Timestamp),
        message: impl FnOnce() -> Option<HandedOver>,
    ) -> bool {
        let last = self.last.number;
        let follows = last.is_some_and(|last| last.saturating_add(1) == number);
        self.last = LastMessage {
            number: Some(number),
            created_at,
        };
        match &mut self.messages {
            Some(messages) if follows && self.is_wanted => messages.extend(message()),
            _ => self.messages = None,
        }
        follows || last.is_none()
    }

    /// Adds an attempt that waits from now on.
    pub(super) fn accept(&mut self, execution: &Execution) {
        self.accepted.push(execution.clone());
    }

    /// Where the messages end now, for [`forget_after`](Self::forget_after).
    pub(super) fn end(&self) -> (LastMessage, usize) {
        (self.last, self.messages.as_ref().map_or(0, Vec::len))
    }

    /// Forgets the messages of a unit that was undone.
    pub(super) fn forget_after(&mut self, (last, number): (LastMessage, usize)) {
        self.last = last;
        if let Some(messages) = &mut self.messages {
            messages.truncate(number);
        }
    }

    /// Hands over what a commit has added that has succeeded.
    pub(super) fn hand_over(self, queues: &Queues) {
        match self.messages {
            Some(messages) => queues.outbox.hand_over(messages),
            None => queues.outbox.close(),
        }
        queues.waiting.hand_over(self.accepted);
    }
}
