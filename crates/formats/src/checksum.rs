//! CRC-32 checksums of large data, as ZIP archives and `.peregrine` files hold them.
//!
//! With a CPU's carry-less multiplication it runs at memory speed, so that checking a model is
//! as fast as reading it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flate2::Crc;

use crate::{Bytes, Error};

/// Data with its expected checksum.
pub struct Checked {
    /// The name used in messages, such as that of an archive's member.
    pub name: String,
    /// Bytes that are hashed before the data.
    pub head: Vec<u8>,
    /// The data.
    pub data: Bytes,
    /// The expected CRC-32 of `head` followed by `data`.
    pub checksum: u32,
}

/// The CRC-32 of two byte strings, one behind the other.
pub fn crc32(head: &[u8], data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(head);
    crc.update(data);
    crc.sum()
}

/// Describes a mismatch of checksums; `None` if they agree.
pub(crate) fn damage(found: u32, expected: u32) -> Option<String> {
    (found != expected)
        .then(|| format!("checksum {found:08x}, expected {expected:08x}: the data is damaged"))
}

/// Verifies the checksums of parts of a file on all cores. The error names the damaged part that
/// comes first in alphabetical order.
pub fn verify(path: &Path, mut parts: Vec<Checked>) -> Result<(), Error> {
    /// One thread for each of so many bytes: hashing them takes far longer than starting a thread.
    const WORTH_A_THREAD: usize = 4 << 20;
    // Hash the longest parts first: a long one at the end would leave the other cores idle.
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
            // Release the pages: those that are used later come back from the page cache.
            part.data.release();
        }
        damaged
    };
    let damaged = thread::scope(|scope| {
        // If a thread cannot be started, the others do its work.
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
