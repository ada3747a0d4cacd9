//! CTranslate2 models of many languages are refused, unless the source comes as they want it.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
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
fn they_are_refused_in_one_sentence() {
    for (languages, name) in [(M2M, "an M2M-100"), (NLLB, "an NLLB"), (MBART, "an mBART")] {
        let folder = directory(languages, false, "</s>");
        let told = message(open_one(folder.path()));
        let [first, second, _] = languages;
        for part in [
            &format!("model.bin: {name} model of 3 languages"),
            "--compat raw-source",
            &format!("`{first} \u{2581}Hello </s>`"),
            "--prefix",
            &format!("`{second}`"),
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    // As fairseq's models are converted.
    assert!(message(open_one(directory(M2M, true, "</s>").path())).contains("M2M-100"));
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
        open_one(directory(languages, end, start).path()).unwrap();
    }
}

#[test]
fn published_families() {
    for (name, family, count) in
        [("m2m100", "M2M-100", 100), ("nllb", "NLLB", 202), ("mbart50", "mBART", 52)]
    {
        let Some(folder) = reference(&format!("more/{name}/ct2-float32")) else { return };
        let told = message(open_one(&folder));
        assert!(told.contains(&format!("an {family} model of {count} languages")), "{told}");
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
    // These have refusals of their own, and those of fairseq and OpenNMT none of this kind.
    for name in ["t5-v10", "t5-v11", "madlad", "onmt-py-relative", "onmt-tf-relative"] {
        let Some(folder) = reference(&format!("more/{name}/ct2-float32")) else { return };
        assert!(!message(open_one(&folder)).contains("languages"), "{name}");
    }
    let Some(folder) = reference("more/fairseq-prenorm/ct2-float32") else { return };
    open_one(&folder).unwrap();
}
