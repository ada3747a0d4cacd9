//! Ranges of decoded text: what must hold for any ids of any tokenizer.

use std::sync::{Arc, LazyLock};

use crate::common::{MODELS, fixture, model};
use peregrine_text::{Decoded, PieceOptions, SentencePiece, Tokenizer, UserDefinedScore};
use proptest::prelude::*;

const HUGGING_FACE: PieceOptions = PieceOptions { language_codes: true, drop_unknown: true };
const CTRANSLATE2: PieceOptions = PieceOptions { language_codes: false, drop_unknown: false };

fn bytes(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

static MODELS_READ: LazyLock<Vec<SentencePiece>> =
    LazyLock::new(|| MODELS.iter().map(|name| model(name)).collect());

/// The field of a protocol buffer with this number and of type bytes.
fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    fn number(message: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    while !message.is_empty() {
        let tag = number(&mut message);
        let length = match tag & 7 {
            0 => {
                number(&mut message);
                continue;
            }
            1 => 8,
            5 => 4,
            _ => number(&mut message) as usize,
        };
        let (content, rest) = message.split_at(length);
        if tag >> 3 == wanted && tag & 7 == 2 {
            return Some(content);
        }
        message = rest;
    }
    None
}

/// A model whose decoded text is rewritten as another model rewrites its input: in small letters and
/// compatible characters.
fn denormalizing(name: &str) -> Vec<u8> {
    fn tagged(number: u8, content: &[u8]) -> Vec<u8> {
        let mut message = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        [&message, content].concat()
    }
    let folding = fixture("case-folding.spm");
    let charsmap = field(field(&folding, 3).unwrap(), 2).unwrap();
    // Neither blanks in front, nor squeezed, nor escaped.
    let spec = [&tagged(2, charsmap)[..], &[3 << 3, 0, 4 << 3, 0, 5 << 3, 0]].concat();
    [&fixture(&format!("{name}.spm"))[..], &tagged(5, &spec)].concat()
}

fn spm(name: &str, bytes: Vec<u8>) -> Tokenizer {
    Tokenizer::sentencepiece(name, bytes.into(), UserDefinedScore::Marian).unwrap()
}

/// Tokenizers of every kind, with odd tokens.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let words = "</s>: 0\n<unk>: 1\na: 2\n\"é@@\": 3\n\"@@\": 4\n\"b@\": 5\n\"c d\": 6\n\"e@@ f\": 7\n\
                 \"@\": 8\n\" g\": 9\n\"h \": 10\n\"😀@@\": 11\n";
    let pieces = r#"["</s>", "<unk>", "<pad>", "▁he", "llo", "▁", "▁▁", "<0xC3>", "<0xA9>", "<0xF0>",
        "<0x9F>", "<0xA6>", "<0x80>", "!", "\u00a0", "水", "▁two▁words", "a▁", "<0xEF>", "<0xBF>", "<0xBD>"]"#;
    let whole = r#"["<unk>", "</s>", "hello", "wörld", " blank "]"#;
    let word_tokenizer = Tokenizer::words("v.yml", bytes(words), None).unwrap();
    let mut all = vec![word_tokenizer.clone().joining_bpe(true), word_tokenizer];
    for options in [HUGGING_FACE, CTRANSLATE2] {
        for list in [pieces, whole] {
            all.push(Tokenizer::pieces(None, ("v.json", bytes(list)), options).unwrap());
        }
    }
    let named = MODELS.iter().filter(|name| model(name).eos_id().is_some());
    all.extend(named.map(|name| spm(name, fixture(&format!("{name}.spm")))));
    for name in ["unigram", "raw", "bpe-bytes", "suffix", "user-defined"] {
        all.push(spm(name, denormalizing(name)));
    }
    all
});

/// What holds for every decoded text.
fn check(decoded: &Decoded, count: usize) -> Result<(), TestCaseError> {
    let Decoded { text, ranges } = decoded;
    prop_assert_eq!(ranges.len(), count);
    let mut at = 0;
    for range in ranges {
        prop_assert!(at <= range.start && range.start <= range.end, "{decoded:?}");
        prop_assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
        prop_assert!(text[at..range.start].trim_matches(' ').is_empty(), "{decoded:?}");
        at = range.end;
    }
    prop_assert!(text[at..].trim_matches(' ').is_empty(), "{decoded:?}");
    Ok(())
}

proptest! {
    #[test]
    fn the_text_is_the_decoded_one_and_ranges_cover_it(
        ids in prop::collection::vec(prop_oneof![0..24u32, 0..600u32], 0..20),
    ) {
        for tokenizer in TOKENIZERS.iter() {
            let decoded = tokenizer.decode_with_ranges(&ids);
            prop_assert_eq!(&decoded.text, &tokenizer.decode(&ids));
            check(&decoded, ids.len())?;
            for (id, range) in ids.iter().zip(&decoded.ranges) {
                let nothing = *id == tokenizer.eos() || *id as usize >= tokenizer.size();
                prop_assert!(range.is_empty() || !nothing, "{id} of {decoded:?}");
            }
        }
    }

    /// A text grows token by token, so the text up to a token tells where the token ends.
    #[test]
    fn ranges_end_where_the_text_of_the_first_tokens_ends(
        ids in prop::collection::vec(0..300u32, 1..15),
    ) {
        for model in MODELS_READ.iter() {
            let decoded = model.decode_with_ranges(&ids);
            check(&decoded, ids.len())?;
            let is_byte = |id: u32| model.piece(id).is_some_and(|piece| piece.starts_with("<0x"));
            for (i, range) in decoded.ranges.iter().enumerate() {
                let next = ids.get(i + 1..).unwrap_or_default();
                if next.iter().any(|&id| is_byte(id)) || is_byte(ids[i]) {
                    continue;
                }
                let before = model.decode(&ids[..i]);
                let text = model.decode(&ids[..=i]);
                prop_assert!(decoded.text.starts_with(&text));
                let added = text[before.len()..].trim_matches(' ');
                prop_assert_eq!(&decoded.text[range.clone()], added, "{} of {:?}", i, &ids);
                prop_assert!(range.start >= before.len() && range.end <= text.len());
            }
        }
    }

    /// Encoded text comes back, and each token's range is in the word its span is in.
    #[test]
    fn source_and_target_ranges_of_plain_text_are_the_same(words in prop::collection::vec("[a-z]{1,8}", 1..8)) {
        let text = words.join(" ");
        for name in ["bpe-bytes", "unigram-bytes", "char"] {
            let model = model(name);
            let encoded = model.encode(&text);
            let decoded = model.decode_with_ranges(&encoded.ids);
            if decoded.text != text {
                continue; // A character that the model does not know.
            }
            for (span, range) in encoded.spans.iter().zip(&decoded.ranges) {
                let inside = text[span.clone()].trim_start();
                prop_assert_eq!(&text[range.clone()], inside);
                prop_assert_eq!(range.end, span.end);
            }
        }
    }
}

#[test]
fn a_character_in_bytes_belongs_to_the_last() {
    let list = r#"["</s>", "▁he", "<0xC3>", "<0xA9>", "!", "<unk>"]"#;
    let tokenizer = Tokenizer::pieces(None, ("v.json", bytes(list)), CTRANSLATE2).unwrap();
    // he é! with an end symbol between the bytes, and a byte that is left alone.
    let decoded = tokenizer.decode_with_ranges(&[1, 2, 0, 3, 4, 2, 4]);
    assert_eq!(decoded.text, "heé!\u{FFFD}!");
    assert_eq!(decoded.ranges, [0..2, 2..2, 2..2, 2..4, 4..5, 5..8, 8..9]);
}

#[test]
fn dropped_tokens_and_trimmed_blanks() {
    let list = r#"["</s>", "<unk>", "<pad>", "▁a", "b", "▁", "\u00a0"]"#;
    let tokenizer = Tokenizer::pieces(None, ("v.json", bytes(list)), HUGGING_FACE).unwrap();
    let decoded = tokenizer.decode_with_ranges(&[6, 3, 1, 4, 2, 5, 3, 6, 0]);
    assert_eq!(decoded.text, "ab  a");
    assert_eq!(decoded.ranges, [0..0, 0..1, 1..1, 1..2, 2..2, 3..3, 4..5, 5..5, 5..5]);
}

#[test]
fn rewritten_text_has_ranges_of_its_own() {
    let tokenizer = spm("raw", denormalizing("raw"));
    // Each character is a piece; the ligature becomes three letters, capitals become small.
    let ids = tokenizer.encode("Aﬃ B½").ids;
    let decoded = tokenizer.decode_with_ranges(&ids);
    assert_eq!(decoded.text, tokenizer.decode(&ids));
    let parts: Vec<&str> =
        decoded.ranges.iter().map(|range| &decoded.text[range.clone()]).collect();
    assert_eq!(parts.concat(), decoded.text.replace(' ', ""));
    assert!(decoded.text.starts_with("affi b"), "{:?}", decoded.text);
}
