//! What all commands share: options for a model, a search and its speed ([`model`], [`search`],
//! [`settings`]), parsing of values on the command line ([`values`], [`numbers`]), text line by
//! line ([`lines`]), and reports for people and programs ([`console`], [`stats`]).

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod console;
pub mod hash;
pub mod languages;
pub mod lines;
pub mod model;
pub mod numbers;
pub mod search;
pub mod settings;
pub mod stats;
pub mod tuning_file;
pub mod values;
