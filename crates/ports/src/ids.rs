//! Generation of ids.

use uuid::Uuid;

/// Generates unique ids.
///
/// # Contract
/// - No two calls return the same id, on any threads.
/// - Ids of consecutive calls increase.
pub trait IdPort: Send + Sync {
    /// A new id: UUID version 7.
    fn next_id(&self) -> Uuid;
}
