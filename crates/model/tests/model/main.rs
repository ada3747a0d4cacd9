//! Models of all formats: opened, checked, written, and hostile ones refused.

mod common;
mod dialects;
mod digest;
mod golden;
mod hostile;
mod languages;
mod notes;
#[path = "../../../../tests/src/reference.rs"]
mod reference;
mod round_trips;
mod verify;
