//! The few UTF-8 functions that must behave exactly as SentencePiece's.
//!
//! `str` cannot be used for these: input may be malformed, and a malformed character is replaced byte by
//! byte (`String::from_utf8_lossy` replaces longer runs at once).

/// U+FFFD, what a malformed byte becomes.
pub(crate) const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Bytes of the character that `first` begins, judged by its high bits alone; a stray continuation byte
/// counts as one.
#[inline]
pub(crate) fn length_by_first_byte(first: u8) -> usize {
    match first >> 4 {
        0x0..=0xB => 1,
        0xC | 0xD => 2,
        0xE => 3,
        _ => 4,
    }
}

/// Length of the well-formed character at the start of `text`; `None` if it is malformed (cut short,
/// overlong, a surrogate, beyond U+10FFFF) or `text` is empty.
#[inline]
pub(crate) fn well_formed(text: &[u8]) -> Option<usize> {
    let &first = text.first()?;
    if first < 0x80 {
        return Some(1);
    }
    let length = length_by_first_byte(first);
    let character = text.get(..length)?;
    std::str::from_utf8(character).is_ok().then_some(length)
}

/// Appends `bytes` to `text`, each malformed byte as U+FFFD.
pub(crate) fn push_lossy(text: &mut String, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = match std::str::from_utf8(bytes) {
            Ok(rest) => return text.push_str(rest),
            Err(error) => error.valid_up_to(),
        };
        let (valid, rest) = bytes.split_at(length);
        text.push_str(std::str::from_utf8(valid).unwrap_or_default());
        text.push(char::REPLACEMENT_CHARACTER);
        bytes = &rest[1..];
    }
}

/// Bytes of text that [`push_lossy`] has made of complete characters after each byte.
pub(crate) fn lossy_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::with_capacity(bytes.len());
    let mut end = 0;
    while ends.len() < bytes.len() {
        let (read, written) = match well_formed(&bytes[ends.len()..]) {
            Some(length) => (length, length),
            None => (1, REPLACEMENT.len()),
        };
        ends.resize(ends.len() + read - 1, end);
        end += written;
        ends.push(end);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_characters_are_recognised() {
        assert_eq!(well_formed("é!".as_bytes()), Some(2));
        assert_eq!(well_formed("😀".as_bytes()), Some(4));
        for bad in
            [&b"\x80"[..], b"\xC1\xBF", b"\xE2\x96", b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b""]
        {
            assert_eq!(well_formed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_malformed_byte_is_replaced() {
        let mut text = String::new();
        push_lossy(&mut text, b"a\xE2\x96b\xC3\xA9\xFF");
        assert_eq!(text, "a\u{FFFD}\u{FFFD}bé\u{FFFD}");
    }

    #[test]
    fn characters_end_with_their_last_byte() {
        assert_eq!(lossy_ends(b"a\xE2\x96b\xC3\xA9\xFF"), [1, 4, 7, 8, 8, 10, 13]);
        assert_eq!(lossy_ends("\u{FFFD}😀".as_bytes()), [0, 0, 3, 3, 3, 3, 7]);
        assert!(lossy_ends(b"").is_empty());
    }
}
