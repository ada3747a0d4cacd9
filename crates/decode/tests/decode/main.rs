//! Search and batching, with networks whose answers are known.

mod callers;
mod common;
mod out_of_memory;
mod run_ahead;
