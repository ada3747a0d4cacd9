//! The clock of all workers, which they read once a step. A platform without [`std::time::Instant`] replaces
//! this file's two items.

/// A point in time.
pub type Moment = std::time::Instant;

/// The time now.
pub fn now() -> Moment {
    Moment::now()
}
