//! CRC-32 over large data: what ZIP archives have, and `.peregrine` files too.
//!
//! With a CPU's carry-less multiplication it runs at memory speed, so that checking a model is
//! as fast as reading it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flate2::Crc;

use crate::{Bytes, Error};

/// Data, and the checksum it should have.
pub struct Checked {
    /// What to call it in messages, such as a member of an archive.
    pub name: String,
    /// Bytes that count as if they stood in front of the data.
    pub head: Vec<u8>,
    /// The data.
    pub data: Bytes,
    /// CRC-32 of both.
    pub checksum: u32,
}

/// The CRC-32 of two byte strings, one behind the other.
pub fn crc32(head: &[u8], data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(head);
    crc.update(data);
    crc.sum()
}

/// What is wrong if a checksum is not the expected one.
pub(crate) fn damage(found: u32, expected: u32) -> Option<String> {
    (found != expected)
        .then(|| format!("checksum {found:08x}, expected {expected:08x}: the data is damaged"))
}

/// Compares the checksums of parts of a file, on all cores. Of several that are damaged, the first by
/// name is told.
pub fn verify(path: &Path, mut parts: Vec<Checked>) -> Result<(), Error> {
    /// Reading this many bytes takes far longer than starting a thread.
    const WORTH_A_THREAD: usize = 4 << 20;
    // The longest first: one at the end would leave the other cores idle.
    parts.sort_by_key(|part| std::cmp::Reverse(part.data.len()));
    let bytes: usize = parts.iter().map(|part| part.data.len()).sum();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(bytes / WORTH_A_THREAD + 1);
    let next = AtomicUsize::new(0);
    let check = || {
        let mut damaged = Vec::new();
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let problem = damage(crc32(&part.head, &part.data), part.checksum);
            damaged.extend(problem.map(|problem| (&part.name, problem)));
            // Pages that are not used later take no memory, and the rest comes from the page cache.
            part.data.release();
        }
        damaged
    };
    let damaged = thread::scope(|scope| {
        // Without a thread the others do the work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, check).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut damaged = check();
        for other in others {
            damaged.extend(other.join().expect("checksums do not panic"));
        }
        damaged
    });
    match damaged.into_iter().min() {
        Some((name, problem)) => Err(Error::new(path, name, problem)),
        None => Ok(()),
    }
}
