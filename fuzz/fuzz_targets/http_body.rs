//! Bytes as the body of a request to the server: JSON, a form, a multipart form, or anything. The first byte picks the kind.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().unwrap());

const KINDS: [&str; 4] = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/plain"];

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, body)) = bytes.split_first() else { return };
    let query = String::from_utf8_lossy(&body[..body.len().min(40)]);
    let kind = KINDS[usize::from(first) % KINDS.len()];
    RUNTIME.block_on(peregrine_server::read_parameters(kind, &query, body));
});
