//! Any bytes as a vocabulary or as BPE codes: refused, or usable without a fault.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_text::{BpeCodes, PieceOptions, Tokenizer, Vocabulary};

fuzz_target!(|bytes: &[u8]| {
    for name in ["v.yml", "v.json", "v.txt"] {
        if let Ok(vocabulary) = Vocabulary::from_named(name, bytes) {
            for id in 0..vocabulary.len().min(100) as u32 {
                vocabulary.token(id).and_then(|token| vocabulary.id(token));
            }
        }
        if let Ok(tokenizer) = Tokenizer::words(name, bytes.into(), None) {
            let ids = tokenizer.encode("a b@@ c </s>").ids;
            let joining = tokenizer.joining_bpe(true);
            assert_eq!(joining.decode_with_ranges(&ids).text, joining.decode(&ids));
        }
        let options = PieceOptions { language_codes: true, drop_unknown: false };
        if let Ok(tokenizer) = Tokenizer::pieces(None, (name, bytes.into()), options) {
            let ids = tokenizer.encode(">>a<< b ▁c").ids;
            assert_eq!(tokenizer.decode_with_ranges(&ids).text, tokenizer.decode(&ids));
        }
    }
    if let Ok(codes) = BpeCodes::from_bytes("codes", bytes) {
        let word: String = String::from_utf8_lossy(bytes).chars().take(200).collect();
        assert_eq!(codes.segment(&word).concat(), word);
    }
});
