//! What must hold for any text and any bytes.

use std::sync::LazyLock;

use crate::common::{MODELS, fixture, model};
use peregrine_text::{
    BpeCodes, Encoded, PieceOptions, SentencePiece, Tokenizer, UserDefinedScore, Vocabulary, Words,
};
use proptest::prelude::*;

static ALL: LazyLock<Vec<SentencePiece>> =
    LazyLock::new(|| MODELS.iter().map(|name| model(name)).collect());
static RAW: LazyLock<SentencePiece> = LazyLock::new(|| model("raw"));
static BYTES: LazyLock<SentencePiece> = LazyLock::new(|| model("bpe-bytes"));

/// Text that hits pieces, blanks, symbols and everything else.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[a-z]{1,6}",
        2 => " {1,3}",
        1 => Just("▁".to_owned()),
        1 => Just("USERSYM".to_owned()),
        1 => Just("two words".to_owned()),
        2 => any::<String>(),
        1 => "[é-ſ\u{300}-\u{310}\u{4E00}-\u{4E10}ﬀ-ﬆ½]{1,4}",
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn check_spans(encoded: &Encoded, length: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(encoded.ids.len(), encoded.spans.len());
    let mut at = 0;
    for span in &encoded.spans {
        prop_assert!(
            at <= span.start && span.start <= span.end && span.end <= length,
            "{:?}",
            encoded
        );
        at = span.end;
    }
    Ok(())
}

proptest! {
    #[test]
    fn spans_are_monotone_and_inside(text in text()) {
        for model in ALL.iter() {
            check_spans(&model.encode(&text), text.len())?;
        }
    }

    #[test]
    fn spans_of_malformed_text_too(text: Vec<u8>) {
        for model in ALL.iter() {
            check_spans(&model.encode_bytes(&text), text.len())?;
        }
    }

    #[test]
    fn an_identity_model_returns_the_text(text in text()) {
        // A literal U+2581 is taken for a blank; nothing else is lost.
        prop_assert_eq!(RAW.decode(&RAW.encode(&text).ids), text.replace('▁', " "));
    }

    #[test]
    fn a_squeezing_model_returns_the_text_squeezed(text in text()) {
        let text = text.replace('▁', " ");
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        prop_assert_eq!(BYTES.decode(&BYTES.encode(&text).ids), words.join(" "));
    }

    #[test]
    fn any_ids_can_be_decoded(ids in prop::collection::vec(0..600u32, 0..20)) {
        for model in ALL.iter() {
            model.decode(&ids);
        }
    }

    #[test]
    fn word_spans_cover_their_words(text in text()) {
        let codes = Some(fixture("codes-0.2.bpe").into());
        let vocabulary = b"</s>\n<unk>\n"[..].into();
        let tokenizer = Tokenizer::words("v.txt", vocabulary, codes).unwrap();
        let encoded = tokenizer.encode(&text);
        check_spans(&encoded, text.len())?;
        let covered: String = encoded.spans.iter().map(|span| &text[span.clone()]).collect();
        prop_assert_eq!(covered, text.replace(' ', ""));
    }

    #[test]
    fn no_bytes_upset_a_parser(bytes: Vec<u8>) {
        parse_all(&bytes);
    }

    #[test]
    fn no_text_upsets_a_parser(text in "(\"?[a-z\\\\xuU0'@: {}#-]{0,8}\"?: ?[0-9]{0,4}\n){0,5}") {
        parse_all(text.as_bytes());
    }

    #[test]
    fn no_damage_to_a_model_upsets_the_reader(
        which in 0..MODELS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = fixture(&format!("{}.spm", MODELS[which]));
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(model) = SentencePiece::from_bytes("damaged", &bytes, UserDefinedScore::Marian) {
            let text = "Bakeli ½ ﬁ  mo 👍 ☃ USERSYM e\u{301} Ｆｕｌｌ";
            let encoded = model.encode(text);
            check_spans(&encoded, text.len())?;
            let decoded = model.decode_with_ranges(&encoded.ids);
            prop_assert_eq!(&decoded.text, &model.decode(&encoded.ids));
            Words::new(text, &encoded.spans);
            Words::new(&decoded.text, &decoded.ranges);
        }
    }
}

fn parse_all(bytes: &[u8]) {
    let _ = SentencePiece::from_bytes("x", bytes, UserDefinedScore::Zero);
    let _ = BpeCodes::from_bytes("x", bytes);
    let _ = Vocabulary::from_yaml("x", bytes);
    let _ = Vocabulary::from_json("x", bytes);
    let _ = Vocabulary::from_text("x", bytes);
    let _ = Vocabulary::from_list("x", bytes);
    let _ = Tokenizer::pieces(None, ("x.json", bytes.into()), PieceOptions::default());
}
