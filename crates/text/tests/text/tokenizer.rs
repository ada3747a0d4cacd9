//! Whole tokenizers: Marian's, Hugging Face's and CTranslate2's ways of using the parts.

use std::sync::Arc;

use crate::common::{fixture, lines, model, shared};
use peregrine_text::{Description, PieceOptions, Recipe, Tokenizer, UserDefinedScore};

const HUGGING_FACE: PieceOptions = PieceOptions { language_codes: true, drop_unknown: true };
const CTRANSLATE2: PieceOptions = PieceOptions { language_codes: false, drop_unknown: false };

fn bytes(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

fn spm(name: &str) -> Tokenizer {
    let file = format!("{name}.spm");
    Tokenizer::sentencepiece(&file, fixture(&file).into(), UserDefinedScore::Marian).unwrap()
}

/// The pieces of the model `unigram` as a vocabulary of its own, numbered backwards.
fn vocabulary_json() -> Arc<[u8]> {
    let model = model("unigram");
    let mut tokens = vec!["</s>", "<unk>", ">>pt<<", "€€"];
    tokens.extend((2..model.len() as u32).rev().filter_map(|id| model.piece(id)));
    tokens.push("<pad>");
    let entry = |(id, token)| format!("{}: {id}", serde_json::json!(token));
    let entries: Vec<String> = tokens.iter().enumerate().map(entry).collect();
    format!("{{{}}}", entries.join(", ")).into_bytes().into()
}

fn pieces(options: PieceOptions) -> Tokenizer {
    let model = ("unigram.spm", fixture("unigram.spm").into());
    Tokenizer::pieces(Some(model), ("vocab.json", vocabulary_json()), options).unwrap()
}

#[test]
fn sentencepiece_keeps_the_models_ids() {
    let tokenizer = spm("unigram");
    let encoded = tokenizer.encode("bakeli mo.");
    assert_eq!(encoded.ids, model("unigram").encode("bakeli mo.").ids);
    assert_eq!(tokenizer.decode(&[&encoded.ids[..], &[0]].concat()), "bakeli mo.");
    assert_eq!((tokenizer.eos(), tokenizer.unk(), tokenizer.token(0)), (0, Some(1), "</s>"));
    assert_eq!((tokenizer.token(99_999), tokenizer.suppressed()), ("", vec![]));
    let encoded = tokenizer.encode_tokens(" ▁  nonsense </s> ");
    assert_eq!(encoded.ids, [tokenizer.id("▁").unwrap(), 1, 0]);
    assert_eq!(encoded.spans, [1..4, 6..14, 15..19]);
}

#[test]
fn control_bytes_are_suppressed() {
    let tokenizer = spm("bpe-bytes");
    let suppressed = tokenizer.suppressed();
    assert_eq!(suppressed.len(), 32);
    assert_eq!(tokenizer.token(suppressed[10]), "<0x0A>");
}

#[test]
fn a_model_without_end_symbol_is_refused() {
    // Piece 0, `<unk>`, of type 2.
    let message = b"\x0a\x09\x0a\x05<unk>\x18\x02";
    let result = Tokenizer::sentencepiece("m.spm", message[..].into(), UserDefinedScore::Marian);
    assert!(result.unwrap_err().problem.contains("</s>"));
}

#[test]
fn words_split_at_blanks_only() {
    let vocabulary = "</s>: 0\n<unk>: 1\na: 2\n\"b\\tc\": 3\n\"d\u{A0}e\": 4\n";
    let tokenizer = Tokenizer::words("v.yml", bytes(vocabulary), None).unwrap();
    let encoded = tokenizer.encode("  a   b\tc x d\u{A0}e ");
    assert_eq!(encoded.ids, [2, 3, 1, 4]);
    assert_eq!(encoded.spans, [2..3, 6..9, 10..11, 12..16]);
    assert_eq!(tokenizer.decode(&[2, 1, 3, 0]), "a <unk> b\tc");
    assert!(tokenizer.encode("").ids.is_empty());
}

#[test]
fn words_are_split_by_codes_and_joined_again() {
    let vocabulary = "</s>\n<unk>\ns@@\nlo@@\nw@@\ne@@\nr\nlow\n";
    let codes = "#version: 0.2\nl o\nlo w</w>\n";
    let tokenizer = Tokenizer::words("v.txt", bytes(vocabulary), Some(bytes(codes))).unwrap();
    let encoded = tokenizer.encode("low slower");
    assert_eq!(encoded.ids, [7, 2, 3, 4, 5, 6]);
    assert_eq!(encoded.spans, [0..3, 4..5, 5..7, 7..8, 8..9, 9..10]);
    assert_eq!(tokenizer.decode(&encoded.ids), "low slower");
    assert_eq!(tokenizer.decode(&[7, 2, 3]), "low slo");
    let plain = tokenizer.joining_bpe(false);
    assert_eq!(plain.decode(&[2, 3, 7]), "s@@ lo@@ low");
}

#[test]
fn words_need_end_and_unknown() {
    for text in ["a: 0\nb: 1\n</s>: 2\n", "a: 0\nb: 1\n<unk>: 2\n"] {
        assert!(Tokenizer::words("v.yml", bytes(text), None).is_err());
    }
}

#[test]
fn the_source_limit_makes_rare_words_unknown() {
    let mut tokenizer =
        Tokenizer::words("v.yml", bytes("</s>: 0\n<unk>: 1\na: 2\nb: 3\n"), None).unwrap();
    tokenizer.limit_source(3);
    assert_eq!(tokenizer.encode("a b").ids, [2, 1]);
    assert_eq!(tokenizer.size(), 3);
    let again = Tokenizer::from_recipe(&tokenizer.recipe()).unwrap();
    assert_eq!(again.encode("a b").ids, [2, 1]);
}

#[test]
fn pieces_are_numbered_by_the_vocabulary() {
    let tokenizer = pieces(HUGGING_FACE);
    let model = model("unigram");
    let text = "bakeli mo, nura.";
    let encoded = tokenizer.encode(text);
    let expected = model.encode(text);
    let texts = |id: &u32| tokenizer.token(*id).to_owned();
    let pieces = |id: &u32| model.piece(*id).unwrap().to_owned();
    assert_eq!(
        encoded.ids.iter().map(texts).collect::<Vec<_>>(),
        expected.ids.iter().map(pieces).collect::<Vec<_>>()
    );
    assert_eq!(encoded.spans, expected.spans);
    assert_eq!(tokenizer.decode(&encoded.ids), text);
}

#[test]
fn language_codes_only_at_the_very_start() {
    let tokenizer = pieces(HUGGING_FACE);
    let encoded = tokenizer.encode(">>pt<< mo");
    assert_eq!((encoded.ids[0], encoded.spans[0].clone()), (2, 0..6));
    assert_eq!(encoded.ids[1..], tokenizer.encode("mo").ids);
    assert_eq!(encoded.spans.last().unwrap().end, 9);
    assert_eq!(tokenizer.encode(">>xx<< mo").ids[0], 1);
    assert_ne!(tokenizer.encode(" >>pt<< mo").ids[0], 2);
    assert_ne!(pieces(CTRANSLATE2).encode(">>pt<< mo").ids[0], 2);
}

#[test]
fn text_unknown_to_the_model_may_be_in_the_vocabulary() {
    let tokenizer = pieces(HUGGING_FACE);
    let unknown = |text: &str| *tokenizer.encode(text).ids.last().unwrap();
    assert_eq!(unknown("mo€€"), 3);
    assert_eq!(unknown("mo€€€"), 1);
}

#[test]
fn special_tokens_when_decoding() {
    let mo = pieces(HUGGING_FACE).encode("mo").ids;
    let pad = pieces(HUGGING_FACE).id("<pad>").unwrap();
    let ids = [&[pad, 1][..], &mo, &[1], &mo, &[0]].concat();
    assert_eq!(pieces(HUGGING_FACE).decode(&ids), "mo mo");
    assert_eq!(pieces(CTRANSLATE2).decode(&ids), " \u{2047}  mo \u{2047}  mo");
}

#[test]
fn pieces_without_a_model() {
    let list = r#"["</s>", "▁he", "llo", "▁wo", "rld", "<0xC3>", "<0xA9>", "!"]"#;
    let tokenizer = Tokenizer::pieces(None, ("v.json", bytes(list)), CTRANSLATE2).unwrap();
    assert_eq!(tokenizer.encode("▁he llo ▁wo rld").ids, [1, 2, 3, 4]);
    assert_eq!(tokenizer.decode(&[1, 2, 3, 4, 5, 6, 7, 0]), "hello worldé!");
    assert_eq!(tokenizer.decode(&[1, 5, 7]), "he\u{FFFD}!");
    // CTranslate2 appends the unknown token to a list without one.
    assert_eq!((tokenizer.unk(), tokenizer.size()), (Some(8), 9));
    let words = r#"["<unk>", "</s>", "hello", "world"]"#;
    let tokenizer = Tokenizer::pieces(None, ("v.json", bytes(words)), CTRANSLATE2).unwrap();
    assert_eq!(tokenizer.decode(&[2, 0, 3, 1]), "hello <unk> world");
}

#[test]
fn byte_pieces_of_the_model_are_looked_up_too() {
    let model = model("bpe-bytes");
    let tokens: Vec<&str> = (0..model.len() as u32).map(|id| model.piece(id).unwrap()).collect();
    let list = serde_json::json!(tokens).to_string();
    let file = ("bpe-bytes.spm", fixture("bpe-bytes.spm").into());
    let tokenizer = Tokenizer::pieces(Some(file), ("v.json", bytes(&list)), CTRANSLATE2).unwrap();
    for text in ["mo 😀☃ nu", "👨\u{200D}👩", "mo"] {
        assert_eq!(tokenizer.encode(text), model.encode(text));
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).ids), text);
    }
}

#[test]
fn recipes_survive_storage() {
    let codes = Some(bytes("#version: 0.2\nl o\n"));
    let words = Tokenizer::words("a/b/v.yml", bytes("</s>: 0\n<unk>: 1\nlo: 2\n"), codes).unwrap();
    let tokenizers = [
        spm("user-defined"),
        words.clone(),
        words.joining_bpe(false),
        pieces(HUGGING_FACE),
        Tokenizer::pieces(None, ("v.json", vocabulary_json()), CTRANSLATE2).unwrap(),
    ];
    for tokenizer in tokenizers {
        let Recipe { description, parts } = tokenizer.recipe();
        let stored = serde_json::to_string(&description).unwrap();
        let description: Description = serde_json::from_str(&stored).unwrap();
        let recipe = Recipe { description, parts };
        assert_eq!(recipe, tokenizer.recipe());
        let again = Tokenizer::from_recipe(&recipe).unwrap();
        assert_eq!(again.recipe(), tokenizer.recipe());
        assert_eq!(again.encode("lo mo USERSYM"), tokenizer.encode("lo mo USERSYM"));
        assert_eq!(again.decode(&[2, 3, 4]), tokenizer.decode(&[2, 3, 4]));
        let broken = Recipe { parts: Vec::new(), ..recipe };
        assert!(Tokenizer::from_recipe(&broken).unwrap_err().problem.contains("missing"));
    }
}

#[test]
fn golden_inputs_have_the_recorded_ids() {
    let cases = [
        ("vocab.en.yml", "test.bpe.en", "test.bpe.en.ids.txt"),
        ("vocab.de.yml", "ref300.bpe.de", "ref300.bpe.de.ids.txt"),
        ("vocab.joint.spm", "test.en", "test.joint.ids.txt"),
        ("vocab.joint.spm", "ref300.de", "ref300.joint.ids.txt"),
        ("vocab.de.spm", "ref300.de", "ref300.de-spm.ids.txt"),
    ];
    for (vocabulary, input, answers) in cases {
        let file = |path: String| shared(&format!("models/golden/{path}"));
        let Some(bytes) = file(format!("vocab/{vocabulary}")) else { return };
        let tokenizer = match vocabulary.ends_with(".spm") {
            true => Tokenizer::sentencepiece(vocabulary, bytes.into(), UserDefinedScore::Marian),
            false => Tokenizer::words(vocabulary, bytes.into(), None),
        };
        let tokenizer = tokenizer.unwrap();
        let inputs = lines(&file(format!("inputs/{input}")).unwrap());
        let answers = lines(&file(format!("inputs/{answers}")).unwrap());
        assert_eq!(inputs.len(), answers.len());
        for (number, (line, answer)) in (1..).zip(inputs.iter().zip(&answers)) {
            let ids: Vec<String> = tokenizer.encode(line).ids.iter().map(u32::to_string).collect();
            assert_eq!(&ids.join(" "), answer, "{input}, line {number}: {line:?}");
        }
    }
}

/// A vocabulary whose segmenter is another one's: words are also spelt in the fewest pieces.
#[test]
fn spellings_are_read_back() {
    let foreign = ("unigram.spm", fixture("unigram.spm").into());
    let vocabulary = r#"{"</s>": 0, "<unk>": 1, "▁bake": 2, "li": 3, "▁b": 4, "a": 5, "k": 6, "e": 7, "l": 8, "i": 9, "▁": 10, "b": 11, "▁mo": 12, ".": 13}"#;
    let vocabulary = ("vocab.json", bytes(vocabulary));
    let tokenizer = Tokenizer::pieces(Some(foreign), vocabulary, CTRANSLATE2).unwrap();
    let spellings = tokenizer.spellings("bakeli mo");
    assert_eq!(spellings.last(), Some(&vec![2, 3, 12]));
    assert!(spellings.iter().all(|ids| tokenizer.decode(ids) == "bakeli mo"));
    assert!(tokenizer.spellings("zebra").is_empty() && tokenizer.spellings("").is_empty());
    for name in ["unigram", "bpe", "unigram-bytes"] {
        let own = spm(name);
        for text in ["bakeli mo", "mo", "bakeli"] {
            let spellings = own.spellings(text);
            assert!(!spellings.is_empty() && spellings.iter().all(|ids| own.decode(ids) == text));
        }
    }
}

#[test]
fn words_have_edges() {
    let vocabulary = r#"{"</s>": 0, "<unk>": 1, "▁go": 2, "es": 3, ".": 4, "工": 5, "<0xE4>": 6}"#;
    let tokenizer =
        Tokenizer::pieces(None, ("vocab.json", bytes(vocabulary)), CTRANSLATE2).unwrap();
    let continues: Vec<u32> = (0..7).filter(|&id| tokenizer.continues_word(id)).collect();
    assert_eq!(continues, [3, 6]);
    let words = Tokenizer::words("v.txt", bytes("</s>\n<unk>\nun@@\nlock\n"), None).unwrap();
    assert!(words.is_unfinished(2) && !words.is_unfinished(3) && !words.continues_word(3));
}
