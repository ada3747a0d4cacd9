//! The precompiled character map inside a model: which character sequences become which text.
//!
//! ```text
//! u32 n │ n bytes: double-array trie, one u32 a unit │ replacements, each ended by NUL
//! ```
//!
//! The trie comes from the file and is not trusted: every index is checked while walking, a walk takes
//! at most one step per input byte, and replacements are bounded when the map is read.

use crate::Error;

/// Far above the longest replacement of any real map (a few dozen bytes); keeps a hostile map from
/// blowing up a line a million times.
const LONGEST_REPLACEMENT: usize = 1000;

/// Longest-match replacement of character sequences.
#[derive(Debug, Clone)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: Box<[u8]>,
}

impl Charsmap {
    pub(super) fn parse(name: &str, place: &str, bytes: &[u8]) -> Result<Self, Error> {
        let fail = |problem: String| Err(Error::new(name, place, problem));
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return fail(format!(
                "the character map has {} bytes, expected at least 4",
                bytes.len()
            ));
        };
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(4) || size == 0 {
            return fail(format!("the character map's trie has {size} of {} bytes", rest.len()));
        }
        let (trie, replacements) = rest.split_at(size);
        let longest = replacements.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0);
        if longest > LONGEST_REPLACEMENT {
            return fail(format!("a replacement of {longest} bytes in the character map"));
        }
        let units = trie
            .chunks_exact(4)
            .map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        Ok(Self { units: units.collect(), replacements: replacements.into() })
    }

    /// The replacement for the longest known sequence at the start of `text`, and that sequence's length.
    #[inline]
    pub(super) fn longest_match(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut node = offset(self.units[0]);
        let mut found = None;
        for (index, &byte) in text.iter().enumerate() {
            node ^= byte as usize;
            let Some(&unit) = self.units.get(node) else { break };
            if label(unit) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if has_leaf(unit) {
                found = Some((node, index + 1));
            }
        }
        let (leaf, length) = found?;
        let start = (self.units.get(leaf)? & 0x7FFF_FFFF) as usize;
        let tail = self.replacements.get(start..)?;
        let end = tail.iter().position(|&byte| byte == 0).unwrap_or(tail.len());
        Some((&tail[..end], length))
    }
}

impl Charsmap {
    /// Whether `byte` always stays as it is when an ASCII character or nothing follows.
    pub(super) fn keeps(&self, byte: u8) -> bool {
        let follows = |next: u8| self.walks(&[byte, next]);
        self.longest_match(&[byte]).is_none() && !(0..0x80).any(follows)
    }

    /// Whether any known sequence starts with these bytes.
    fn walks(&self, bytes: &[u8]) -> bool {
        let mut node = offset(self.units[0]);
        bytes.iter().all(|&byte| {
            node ^= byte as usize;
            let unit = self.units.get(node).copied().filter(|&unit| label(unit) == u32::from(byte));
            node ^= unit.map_or(0, offset);
            unit.is_some()
        })
    }
}

/// The byte that leads to a unit; the high bit marks leaves, which no byte leads to.
fn label(unit: u32) -> u32 {
    unit & 0x8000_00FF
}

fn has_leaf(unit: u32) -> bool {
    unit & 0x100 != 0
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_maps_are_refused() {
        for bytes in [&b""[..], b"abc", b"\x08\0\0\0abcd", b"\x03\0\0\0abcd", b"\0\0\0\0"] {
            assert!(Charsmap::parse("m", "p", bytes).is_err(), "{bytes:?}");
        }
        let mut long = b"\x04\0\0\0\0\0\0\0".to_vec();
        long.resize(5000, b'x');
        assert!(Charsmap::parse("m", "p", &long).is_err());
    }

    #[test]
    fn a_trie_that_loops_or_points_outside_is_harmless() {
        // Every unit accepts 'a', has a leaf and leads back into the array or far out of it.
        for jump in [0u32, 1 << 10, 0x3F_FFFF << 10 | 0x200] {
            let units: Vec<u8> =
                (0..256).flat_map(|_| (jump | 0x100 | 0x61).to_le_bytes()).collect();
            let bytes = [&1024u32.to_le_bytes()[..], &units, b"x\0"].concat();
            let map = Charsmap::parse("m", "p", &bytes).unwrap();
            map.longest_match(&[b'a'; 1000]);
        }
    }
}
