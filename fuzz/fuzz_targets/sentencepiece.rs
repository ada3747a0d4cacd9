//! Any bytes as a SentencePiece model: it is refused, or encodes and decodes without a fault.
//!
//! Seeds: the `.spm` files in `crates/text/tests/fixtures`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_text::{SentencePiece, UserDefinedScore};

const TEXT: &str = "Bakeli ½ ﬁ  mo 👍 ☃ USERSYM e\u{301} Ｆｕｌｌ ▁ </s>";

fuzz_target!(|bytes: &[u8]| {
    for rule in [UserDefinedScore::Zero, UserDefinedScore::Marian] {
        let Ok(model) = SentencePiece::from_bytes("fuzz.spm", bytes, rule) else { return };
        // The model's own bytes are text too, and malformed at that.
        let tail = &bytes[bytes.len().saturating_sub(200)..];
        for text in [TEXT.as_bytes(), tail] {
            let encoded = model.encode_bytes(text);
            assert_eq!(encoded.ids.len(), encoded.spans.len());
            assert!(encoded.spans.iter().all(|span| span.start <= span.end));
            assert!(encoded.spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!(encoded.spans.last().is_none_or(|span| span.end <= text.len()));
            assert!(encoded.ids.iter().all(|&id| model.piece(id).is_some()));
            assert_eq!(model.decode_with_ranges(&encoded.ids).text, model.decode(&encoded.ids));
        }
    }
});
