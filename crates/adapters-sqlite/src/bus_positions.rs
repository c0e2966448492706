//! Positions of broker streams, one row each.

use punctual_ports::{BusPosition, PortError, PortErrorKind};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::sql;
use crate::timer_store::rows::parsed;

/// A position whose sequence fits into the table.
pub(crate) struct StorablePosition {
    position: BusPosition,
    last_sequence: i64,
}

impl StorablePosition {
    pub(crate) fn new(operation: &'static str, position: BusPosition) -> Result<Self, PortError> {
        let last_sequence = i64::try_from(position.last_sequence).map_err(|_| {
            let reason = format!(
                "sequence {} of stream {} is too great for the database: it can be up to {}",
                position.last_sequence,
                position.stream,
                i64::MAX
            );
            PortError::new(PortErrorKind::Rejected, operation, reason)
        })?;
        Ok(Self {
            position,
            last_sequence,
        })
    }
}

pub(crate) fn save(connection: &Connection, storable: &StorablePosition) -> rusqlite::Result<()> {
    let position = &storable.position;
    let mut statement = connection.prepare_cached(sql::SAVE_POSITION)?;
    statement.execute(params![
        position.stream,
        position.stream_created_at,
        storable.last_sequence,
        position.last_message_id,
        position.acknowledged_at.to_string(),
        position.covers_until.to_string(),
    ])?;
    Ok(())
}

/// The id of the database; keeps this one if it has none.
pub(crate) fn owner(connection: &Connection, new: Uuid) -> rusqlite::Result<Uuid> {
    let mut keep = connection.prepare_cached(sql::KEEP_ID)?;
    keep.execute(params![new.to_string()])?;
    let mut read = connection.prepare_cached(sql::DATABASE_ID)?;
    read.query_row([], |row| parsed(row, 0))
}

pub(crate) fn load(connection: &Connection, stream: &str) -> rusqlite::Result<Option<BusPosition>> {
    let mut statement = connection.prepare_cached(sql::LOAD_POSITION)?;
    let found = statement.query_row(params![stream], |row| {
        let last_sequence: i64 = row.get(2)?;
        Ok(BusPosition {
            stream: row.get(0)?,
            stream_created_at: row.get(1)?,
            last_sequence: u64::try_from(last_sequence)
                .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(2, last_sequence))?,
            last_message_id: row.get(3)?,
            acknowledged_at: parsed(row, 4)?,
            covers_until: parsed(row, 5)?,
        })
    });
    found.optional()
}
