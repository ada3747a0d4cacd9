//! CTranslate2 models of many languages are told by their vocabularies.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use peregrine_model::*;
use peregrine_text::Tokenizer;

/// A directory with a vocabulary in which some words are languages.
fn directory(languages: [&str; 3], end: bool, start: &str) -> tempfile::TempDir {
    let mut words = vocabulary(WORDS);
    for (id, language) in (10..).zip(languages) {
        words = words.replace(&format!("\u{2581}w{id}:"), &format!("{language}:"));
    }
    words = words.replace("\u{2581}w20:", "<s>:");
    let tokenizer = Tokenizer::words("vocab.yml", words.as_bytes().into(), None).unwrap();
    let mut description = small();
    description.start = Start::Token(tokenizer.id(start).unwrap());
    description.source_frame.end = end.then_some(0);
    let mut model = made_model(&description, 3);
    model.source = Arc::new(tokenizer);
    model.target = model.source.clone();
    let folder = tempfile::tempdir().unwrap();
    export::ctranslate2(&model, folder.path()).unwrap();
    folder
}

fn open_raw(path: &Path) -> Result<Model, ModelError> {
    let options = OpenOptions { compat: vec![Compat::RawSource], ..OpenOptions::default() };
    open(&[path.to_path_buf()], &options)
}

const M2M: [&str; 3] = ["__ast__", "__en__", "__pt__"];
const NLLB: [&str; 3] = ["ace_Arab", "eng_Latn", "por_Latn"];
const MBART: [&str; 3] = ["ar_AR", "en_XX", "pt_XX"];

#[test]
fn languages_are_found_in_the_vocabulary() {
    for (languages, codes) in [(M2M, ["ast", "en", "pt"]), (NLLB, NLLB), (MBART, MBART)] {
        for end in [false, true] {
            let folder = directory(languages, end, "</s>");
            let model = open_one(folder.path()).unwrap();
            // fairseq's converter adds the end symbol, and of its models only M2M-100 is multilingual.
            let Some(known) = model.languages.as_ref().filter(|_| !end || languages == M2M) else {
                assert!(model.languages.is_none() && end);
                continue;
            };
            let found: Vec<&str> =
                known.list.iter().map(|language| language.code.as_str()).collect();
            assert_eq!(found, codes);
            let ids: Vec<u32> = known.list.iter().map(|language| language.id).collect();
            assert_eq!(ids, [10, 11, 12]);
            assert_eq!(peek_languages(folder.path()).unwrap(), codes);
            let frame = transformer(&model).source_frame;
            let framed = known.frame(frame, known.find("en"), known.find("pt")).frame(&[3]);
            assert_eq!(framed, if languages == M2M || !end { vec![11, 3, 0] } else { vec![3] });
            // Text does not show them.
            assert_eq!(model.target.decode(&[12, 3]), model.target.decode(&[3]));
        }
    }
}

#[test]
fn raw_sources_are_taken_as_they_are() {
    for languages in [M2M, NLLB, MBART] {
        let folder = directory(languages, false, "</s>");
        let model = open_raw(folder.path()).unwrap();
        let line = format!("{} \u{2581}w3 \u{2581}w4 </s>", languages[1]);
        assert_eq!(model.source.encode(&line).ids, [11, 3, 4, 0]);
        assert_eq!(model.target.encode(languages[2]).ids, [12]);
        let frame = transformer(&model).source_frame;
        assert_eq!((frame.begin, frame.end), (None, None));
    }
    // A SentencePiece model would cut the tokens to pieces.
    let folder = directory(NLLB, false, "</s>");
    let spm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transformer-post");
    std::fs::copy(spm.join("vocab.spm"), folder.path().join("source.spm")).unwrap();
    assert_eq!(open_raw(folder.path()).unwrap().source.encode("eng_Latn </s>").ids, [11, 0]);
}

#[test]
fn ordinary_models_with_odd_words_are_not() {
    for (languages, end, start) in [
        (["\u{2581}a", "\u{2581}b", "en_US"], false, "</s>"), // one such word is a word
        (MBART, true, "</s>"),                                // fairseq's
        (NLLB, false, "<s>"),                                 // OpenNMT's
        (["en_us", "__e__", "eng_latn"], false, "</s>"),
    ] {
        let model = open_one(directory(languages, end, start).path()).unwrap();
        assert!(model.languages.is_none());
    }
}

#[test]
fn published_families() {
    for (name, count) in [("m2m100", 100), ("nllb", 202), ("mbart50", 52)] {
        let Some(folder) = reference(&format!("more/{name}/ct2-float32")) else { return };
        for path in [&folder, &folder.join("../hf")] {
            let languages = open_one(path).unwrap().languages.unwrap();
            assert_eq!(languages.list.len(), count, "{}", path.display());
            assert!(languages.find("Portuguese").is_some());
        }
        let model = open_raw(&folder).unwrap();
        let sources = std::fs::read_to_string(folder.join("../source.jsonl")).unwrap();
        for line in sources.lines() {
            let source: serde_json::Value = serde_json::from_str(line).unwrap();
            let tokens = source["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap());
            let ids: Vec<u64> =
                source["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
            let encoded = model.source.encode(&tokens.collect::<Vec<_>>().join(" ")).ids;
            assert!(encoded.iter().map(|&id| u64::from(id)).eq(ids), "{line}");
        }
    }
    // These are refused by one sentence that names the reason.
    for (name, reason) in [
        ("t5-v10", "T5's networks"),
        ("t5-v11", "T5's networks"),
        ("madlad", "T5's networks"),
        ("onmt-py-relative", "Shaw's relative positions"),
        ("onmt-tf-relative", "Shaw's relative positions"),
    ] {
        let Some(folder) = reference(&format!("more/{name}/ct2-float32")) else { return };
        assert!(message(open_one(&folder)).contains(reason), "{name}");
        let checkpoint = folder.join("../hf");
        assert!(!checkpoint.exists() || message(open_one(&checkpoint)).contains(reason), "{name}");
    }
    let Some(folder) = reference("more/fairseq-prenorm/ct2-float32") else { return };
    assert!(open_one(&folder).unwrap().languages.is_none());
}
