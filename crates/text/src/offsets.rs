//! Places in a text: byte offsets to the units that other programs count in.

use std::ops::Range;

/// What an offset into a text counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// Bytes of UTF-8, as Rust counts.
    #[default]
    Byte,
    /// Unicode code points, as Python counts.
    CodePoint,
    /// UTF-16 code units, as JavaScript and Java count.
    Utf16,
}

/// Bytes between two entries of the table.
const BLOCK: usize = 64;

/// Converts byte offsets of a text. The text is read once; a question then takes a look at a few bytes.
///
/// ```
/// use peregrine_text::{Offsets, Unit};
///
/// let text = "Olá 🦀!";
/// let crab = 5..9;
/// assert_eq!(&text[crab.clone()], "🦀");
/// assert_eq!(Offsets::new(text, Unit::CodePoint).range(&crab), 4..5);
/// assert_eq!(Offsets::new(text, Unit::Utf16).range(&crab), 4..6);
/// ```
#[derive(Debug, Clone)]
pub struct Offsets<'a> {
    text: &'a [u8],
    unit: Unit,
    /// Units before each block of bytes; empty where bytes and units are the same.
    table: Vec<usize>,
}

impl<'a> Offsets<'a> {
    /// The offsets of a text.
    pub fn new(text: &'a str, unit: Unit) -> Offsets<'a> {
        let text = text.as_bytes();
        let mut table = Vec::new();
        if unit != Unit::Byte && !text.is_ascii() {
            let mut count = 0;
            table.reserve(text.len() / BLOCK + 1);
            for block in text.chunks(BLOCK) {
                table.push(count);
                count += units(block, unit);
            }
            table.push(count);
        }
        Offsets { text, unit, table }
    }

    /// The units before a byte. A byte within a character counts as behind it, one behind the text as its end.
    pub fn at(&self, byte: usize) -> usize {
        let byte = byte.min(self.text.len());
        match self.table.get(byte / BLOCK) {
            None => byte,
            Some(count) => count + units(&self.text[byte / BLOCK * BLOCK..byte], self.unit),
        }
    }

    /// A range of bytes in units.
    pub fn range(&self, bytes: &Range<usize>) -> Range<usize> {
        self.at(bytes.start)..self.at(bytes.end)
    }
}

/// The units whose characters begin in these bytes.
fn units(bytes: &[u8], unit: Unit) -> usize {
    let width = |&byte: &u8| match byte {
        // A byte that goes on with a character.
        0x80..0xC0 => 0,
        // A character beyond the first 65,536 is two units of UTF-16.
        0xF0.. if unit == Unit::Utf16 => 2,
        _ => 1,
    };
    bytes.iter().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: decode what is before the place.
    fn slowly(text: &str, byte: usize, unit: Unit) -> usize {
        match unit {
            Unit::Byte => byte,
            Unit::CodePoint => text[..byte].chars().count(),
            Unit::Utf16 => text[..byte].encode_utf16().count(),
        }
    }

    #[track_caller]
    fn check(text: &str) {
        for unit in [Unit::Byte, Unit::CodePoint, Unit::Utf16] {
            let offsets = Offsets::new(text, unit);
            for byte in (0..=text.len()).filter(|&byte| text.is_char_boundary(byte)) {
                assert_eq!(offsets.at(byte), slowly(text, byte, unit), "{text:?} {byte} {unit:?}");
            }
            assert_eq!(offsets.at(text.len() + 9), slowly(text, text.len(), unit));
        }
    }

    #[test]
    fn every_place_of_every_script() {
        check("");
        check("plain words");
        check("日本語 の テキスト。𠮷野家");
        check("👩‍👩‍👧 🇵🇹 e\u{301} ❤️ 🦀");
        check(&"é😀 水a".repeat(50));
        check(&"a".repeat(BLOCK));
        check(&"𠮷".repeat(BLOCK));
    }

    proptest::proptest! {
        #[test]
        fn any_text(text: String) {
            check(&text);
        }
    }
}
