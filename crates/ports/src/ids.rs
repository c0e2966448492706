//! New ids.

use uuid::Uuid;

/// Makes ids that nobody has made before.
///
/// # Contract
/// - No two calls give the same id, from whatever threads.
/// - Each id made by one caller after another is greater than the one before.
pub trait IdPort: Send + Sync {
    /// A new id: UUID version 7.
    fn next_id(&self) -> Uuid;
}
