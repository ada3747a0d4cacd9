//! Small correct files, damaged everywhere: a reader may refuse them but never panic.

use proptest::prelude::*;

use crate::samples::{self, Sample, source};

/// Every format here tells where it ends, so no part of a file is a file.
#[test]
fn truncated_at_every_byte() {
    for sample in samples::all() {
        for length in 0..sample.bytes.len() {
            let mut part = sample.bytes[..length].to_vec();
            (sample.seal)(&mut part);
            let result = (sample.read)(&source(&part));
            assert!(result.is_err(), "{}: {length} bytes were accepted", sample.name);
        }
    }
}

#[test]
fn every_byte_changed() {
    for sample in samples::all() {
        for (offset, &byte) in sample.bytes.iter().enumerate() {
            for value in [0, 1, 0x7f, 0x80, 0xff, byte ^ 1, byte ^ 0x20, byte.wrapping_add(1)] {
                read_changed(sample, offset, &[value]);
            }
        }
    }
}

#[test]
fn every_field_made_huge() {
    const HUGE: [u64; 7] =
        [u64::MAX, i64::MAX as u64, 1 << 62, 1 << 32, u32::MAX as u64, 0x7fff_ffff, 0x0001_0000];
    for sample in samples::all() {
        for offset in 0..sample.bytes.len() {
            for value in HUGE {
                let field = value.to_le_bytes();
                read_changed(sample, offset, &field);
                read_changed(sample, offset, &field[..4]);
                read_changed(sample, offset, &field[..2]);
            }
        }
    }
}

/// Reads a sample with some bytes replaced; whether it is accepted does not matter.
fn read_changed(sample: &Sample, offset: usize, replacement: &[u8]) {
    let mut bytes = sample.bytes.clone();
    let end = bytes.len().min(offset + replacement.len());
    bytes[offset..end].copy_from_slice(&replacement[..end - offset]);
    (sample.seal)(&mut bytes);
    let _ = (sample.read)(&source(&bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Several changes at once, insertions and removals.
    #[test]
    fn several_changes(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..6),
    ) {
        for sample in samples::all() {
            let mut bytes = sample.bytes.clone();
            for (index, value, change) in &changes {
                let offset = index.index(bytes.len());
                match change {
                    0 => bytes[offset] = *value,
                    1 => bytes.insert(offset, *value),
                    _ => drop(bytes.remove(offset)),
                }
            }
            (sample.seal)(&mut bytes);
            let _ = (sample.read)(&source(&bytes));
        }
    }

    /// Bytes that were never a file, behind each format's first bytes.
    #[test]
    fn noise(noise in prop::collection::vec(any::<u8>(), 0..200), kept in 0usize..64) {
        for sample in samples::all() {
            let mut bytes = sample.bytes[..kept.min(sample.bytes.len())].to_vec();
            bytes.extend(&noise);
            (sample.seal)(&mut bytes);
            let _ = (sample.read)(&source(&bytes));
        }
    }
}
