//! SentencePiece models against the answers of the original library.

use std::ops::Range;
use std::time::Instant;

use crate::common::{MODELS, fixture, generated_lines, ids, json, lines, model, shared, tie_lines};
use peregrine_text::{SentencePiece, UserDefinedScore};

fn flat(spans: &[Range<usize>]) -> Vec<u32> {
    spans.iter().flat_map(|span| [span.start as u32, span.end as u32]).collect()
}

#[test]
fn sentences_give_the_same_ids_spans_and_text() {
    let sentences = json("sentences.json");
    for name in MODELS {
        let model = model(name);
        let answers = json(&format!("{name}.json"));
        let pairs = sentences["encode"].as_array().unwrap().iter();
        for (text, answer) in pairs.zip(answers["encode"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let encoded = model.encode(text);
            assert_eq!(encoded.ids, ids(&answer[0]), "{name}: ids of {text:?}");
            if answer[1].is_array() {
                assert_eq!(flat(&encoded.spans), ids(&answer[1]), "{name}: spans of {text:?}");
            }
            let decoded = answer[2].as_str().unwrap();
            assert_eq!(model.decode(&encoded.ids), decoded, "{name}: decoding {text:?}");
        }
    }
}

#[test]
fn sentences_give_the_ids_of_the_library_in_marian() {
    let sentences = json("sentences.json");
    for name in ["unigram", "user-defined", "unused", "ties", "suffix"] {
        let file = format!("{name}.spm");
        let model =
            SentencePiece::from_bytes(&file, &fixture(&file), UserDefinedScore::Marian).unwrap();
        let answers = json(&format!("{name}.marian.json"));
        let pairs = sentences["encode"].as_array().unwrap().iter();
        for (text, answer) in pairs.zip(answers["encode"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            assert_eq!(model.encode(text).ids, ids(answer), "{name}: ids of {text:?}");
        }
    }
}

#[test]
fn any_ids_decode_to_the_same_text() {
    for name in MODELS {
        let model = model(name);
        for answer in json(&format!("{name}.json"))["decode"].as_array().unwrap() {
            let ids = ids(&answer[0]);
            assert_eq!(model.decode(&ids), answer[1].as_str().unwrap(), "{name}: {ids:?}");
        }
    }
}

#[test]
fn malformed_bytes_give_the_same_ids() {
    let sentences = json("sentences.json");
    for name in MODELS {
        let model = model(name);
        let answers = json(&format!("{name}.json"));
        let pairs = sentences["malformed"].as_array().unwrap().iter();
        for (hex, answer) in pairs.zip(answers["malformed"].as_array().unwrap()) {
            let hex = hex.as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            assert_eq!(model.encode_bytes(&bytes).ids, ids(answer), "{name}: {hex}");
        }
    }
}

/// 32-bit FNV-1a over ids, every line ended by `u32::MAX`.
fn fnv(lines: &[Vec<u32>]) -> u32 {
    let numbers = lines.iter().flat_map(|ids| ids.iter().copied().chain([u32::MAX]));
    numbers
        .flat_map(u32::to_le_bytes)
        .fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn check_hashes(model: &SentencePiece, what: &str, lines: &[String], hashes: &str) {
    const BLOCK: usize = 16;
    assert_eq!(hashes.len(), lines.len().div_ceil(BLOCK) * 8, "{what}: number of lines");
    for (block, lines) in lines.chunks(BLOCK).enumerate() {
        let ids: Vec<_> = lines.iter().map(|line| model.encode(line).ids).collect();
        let expected = u32::from_str_radix(&hashes[block * 8..block * 8 + 8], 16).unwrap();
        let first = block * BLOCK + 1;
        assert_eq!(fnv(&ids), expected, "{what}: a line from {first} on differs: {lines:#?}");
    }
}

fn check_reference_texts(file: &str, rule: UserDefinedScore) {
    for entry in json(file).as_array().unwrap() {
        let field = |name: &str| entry[name].as_str().unwrap();
        let (name, text) = (field("model"), field("text"));
        let own = !name.contains('/');
        let bytes = if own { Some(fixture(name)) } else { shared(&format!("models/{name}")) };
        let Some(bytes) = bytes else { continue };
        let model = SentencePiece::from_bytes(name, &bytes, rule).unwrap();
        let what = format!("{name} on {text}");
        let lines = match text {
            "generated" => generated_lines(11, 3000),
            "ties" => tie_lines(3000),
            path => match shared(&format!("data/{path}")) {
                Some(bytes) => lines(&bytes),
                None => continue,
            },
        };
        check_hashes(&model, &what, &lines, field("hashes"));
    }
}

#[test]
fn reference_texts_give_the_same_ids() {
    check_reference_texts("reference-hashes.json", UserDefinedScore::Zero);
}

#[test]
fn reference_texts_give_the_ids_of_the_library_in_marian() {
    check_reference_texts("reference-hashes.marian.json", UserDefinedScore::Marian);
}

#[test]
fn documented_vectors_of_the_en_pt_model() {
    let Some(bytes) = shared("models/enpt/vocab.enpt.spm") else { return };
    let model = SentencePiece::from_bytes("enpt", &bytes, UserDefinedScore::Marian).unwrap();
    assert_eq!(model.encode("Hello world! ½ ﬁne").ids, [9086, 391, 103, 92, 1, 197, 5124]);
    assert_eq!((model.len(), model.eos_id(), model.unk_id()), (32000, Some(0), 1));
    assert_eq!((model.piece(4), model.id("▁de"), model.bos_id()), (Some("▁de"), Some(4), None));
}

#[test]
fn the_two_rules_for_user_defined_pieces_differ() {
    // The symbol is worth 0.1 or -0.1, against -0.05 for spelling it out.
    let piece = |text: &str, score: f32, kind: u8| {
        let mut message = vec![0x0A, text.len() as u8];
        message.extend(text.bytes());
        message.push(0x15);
        message.extend(score.to_le_bytes());
        message.extend([0x18, kind]);
        [&[0x0A, message.len() as u8][..], &message].concat()
    };
    let pieces =
        [("<unk>", 0.0, 2), ("▁", -1.0, 1), ("a", -0.02, 1), ("b", -0.03, 1), ("ab", 0.0, 4)];
    let bytes: Vec<u8> =
        pieces.iter().flat_map(|&(text, score, kind)| piece(text, score, kind)).collect();
    let ids = |rule| SentencePiece::from_bytes("m", &bytes, rule).unwrap().encode("ab").ids;
    assert_eq!(ids(UserDefinedScore::Zero), [1, 4]);
    assert_eq!(ids(UserDefinedScore::Marian), [1, 2, 3]);
}

#[test]
fn long_lines_take_time_in_proportion() {
    let inputs =
        ["a".repeat(100_000), "ba".repeat(50_000), "мир ".repeat(25_000), "☃".repeat(100_000)];
    for name in MODELS {
        let model = model(name);
        for input in &inputs {
            let start = Instant::now();
            let encoded = model.encode(input);
            let decoded = model.decode(&encoded.ids);
            assert!(!decoded.is_empty());
            let elapsed = start.elapsed();
            assert!(elapsed.as_millis() < 900, "{name}: {elapsed:?} for {} bytes", input.len());
        }
    }
}
