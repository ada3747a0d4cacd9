//! What all commands share: options for a model, a search and its speed ([`model`], [`search`], [`settings`]), how values are
//! read from the command line ([`values`], [`numbers`]), text line by line ([`lines`]), and what is said to people and programs
//! ([`console`], [`stats`]).

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod console;
pub mod hash;
pub mod lines;
pub mod model;
pub mod numbers;
pub mod search;
pub mod settings;
pub mod stats;
pub mod tuning_file;
pub mod values;
