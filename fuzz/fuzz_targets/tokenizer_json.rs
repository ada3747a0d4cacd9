//! Any bytes as Hugging Face's `tokenizer.json`: refused by one line, or it encodes and decodes without a fault.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_text::TokenizerJson;

const TEXT: &str = "the ab  <2pt>\n ½ ﬁ 👍 e\u{301} ▁ </s> eng_Latn";

fuzz_target!(|bytes: &[u8]| {
    let TokenizerJson { sentencepiece: model, added } =
        match TokenizerJson::from_bytes("fuzz.json", bytes) {
            Ok(json) => json,
            Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
        };
    assert!(added.iter().all(|token| model.piece(token.id) == Some(&*token.content)));
    assert!(model.pieces().all(|piece| !piece.is_empty() && model.id(piece).is_some()));
    // The file itself is text too.
    let tail = &bytes[bytes.len().saturating_sub(200)..];
    for text in [TEXT.as_bytes(), tail] {
        let encoded = model.encode_bytes(text);
        assert_eq!(encoded.ids.len(), encoded.spans.len());
        assert!(encoded.spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(encoded.spans.last().is_none_or(|span| span.end <= text.len()));
        let is_control = |id: &u32| {
            let token = added.iter().find(|token| token.id == *id && *id != model.unk_id());
            token.is_some_and(|token| token.special && !token.content.starts_with("<0x"))
        };
        assert!(!encoded.ids.iter().any(is_control), "a control word was found in text");
        assert_eq!(model.decode_with_ranges(&encoded.ids).text, model.decode(&encoded.ids));
    }
});
