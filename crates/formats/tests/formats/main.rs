//! Tests of all readers and writers: round trips, files of other programs, hostile files.

mod archive;
mod damage;
mod hostile;
mod hostile_pickles;
mod mutations;
mod pickles;
#[path = "../../../../tests/src/reference.rs"]
mod reference;
mod reference_models;
mod round_trips;
mod samples;
mod writing;
