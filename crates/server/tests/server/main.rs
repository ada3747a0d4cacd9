//! A server in this process, asked over real connections.

mod common;
#[cfg(feature = "cuda")]
mod device;
mod dialects;
mod docs;
mod multilingual;
mod native;
mod recorded;
mod serving;
