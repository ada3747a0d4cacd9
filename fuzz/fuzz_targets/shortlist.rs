//! Bytes as a file of `peregrine_formats::shortlist`, with the checksum made right: the fuzzer would
//! hardly ever find it, and never get past it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_formats::{Source, shortlist};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let Ok(list) = shortlist::read(&Source::new("fuzz", bytes)) else { return };
    for word in 0..=list.source_words() as u32 {
        let _ = list.list(word);
    }
});

fn seal(bytes: &mut [u8]) {
    let Some(body) = bytes.get(16..) else { return };
    let mut hash = 0u64;
    for word in body.as_chunks().0 {
        let word = u64::from_le_bytes(*word);
        hash ^= word.wrapping_add(0x9e37_79b9).wrapping_add(hash << 6).wrapping_add(hash >> 2);
    }
    bytes[8..16].copy_from_slice(&hash.to_le_bytes());
}
