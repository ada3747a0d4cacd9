//! Hugging Face's `tokenizer.json`: it must segment as the SentencePiece model that it was made from.

use std::time::{Duration, Instant};

use crate::common::spm::Spm;
use crate::common::{fixture, generated_lines, ids, lines, model, shared, tie_lines};
use peregrine_text::{
    AddedToken, PieceOptions, SentencePiece, Tokenizer, TokenizerJson, UserDefinedScore,
    multilingual,
};
use serde_json::{Value, json};

/// Fixtures that `tokenizer.json` can describe: no blanks as suffixes, no unused pieces.
const EXPRESSIBLE: [&str; 10] = [
    "unigram",
    "case-folding",
    "bpe",
    "bpe-bytes",
    "unigram-bytes",
    "user-defined",
    "user-defined-bpe",
    "raw",
    "raw-prefix",
    "ties",
];

fn open(file: &Value) -> SentencePiece {
    read(file.to_string().as_bytes()).unwrap().sentencepiece
}

fn read(bytes: &[u8]) -> Result<TokenizerJson, peregrine_text::Error> {
    TokenizerJson::from_bytes("tokenizer.json", bytes)
}

fn texts(model: &SentencePiece, line: &str) -> Vec<String> {
    let piece = |id: &u32| model.piece(*id).unwrap().to_owned();
    model.encode(line).ids.iter().map(piece).collect()
}

#[test]
fn converted_models_give_the_ids_and_text_of_the_originals() {
    let mut lines = generated_lines(11, 1500);
    lines.extend(tie_lines(500));
    let sentences = crate::common::json("sentences.json");
    let sentences = sentences["encode"].as_array().unwrap().iter();
    lines.extend(sentences.map(|line| line.as_str().unwrap().to_owned()));
    for name in EXPRESSIBLE {
        let original = model(name);
        let converted = open(&Spm::read(&fixture(&format!("{name}.spm"))).tokenizer_json());
        assert!(converted.pieces().eq(original.pieces()), "{name}");
        for line in &lines {
            let expected = original.encode(line);
            assert_eq!(converted.encode(line), expected, "{name}: {line:?}");
            if name != "raw" {
                // Its unknown piece prints in a way of its own, which the file does not tell.
                let text = original.decode(&expected.ids);
                assert_eq!(converted.decode(&expected.ids), text, "{name}: {line:?}");
            }
        }
    }
}

#[test]
fn merges_of_the_best_piece_that_were_left_out_are_found_again() {
    for name in EXPRESSIBLE {
        let spm = Spm::read(&fixture(&format!("{name}.spm")));
        if !spm.is_bpe {
            continue;
        }
        let mut file = spm.tokenizer_json();
        let merges = file["model"]["merges"].as_array_mut().unwrap();
        let joined =
            |merge: &Value| [merge[0].as_str().unwrap(), merge[1].as_str().unwrap()].concat();
        // User-defined pieces have the score zero too.
        let scores = spm.pieces.iter().filter(|piece| piece.2 == 1);
        let best = scores.max_by(|left, right| left.1.total_cmp(&right.1)).unwrap();
        let count = merges.len();
        merges.retain(|merge| joined(merge) != best.0);
        assert!(merges.len() < count, "{name}");
        let (original, converted) = (model(name), open(&file));
        for line in generated_lines(3, 500) {
            assert_eq!(converted.encode(&line), original.encode(&line), "{name}: {line:?}");
        }
        let text = best.0.replace('▁', " ").repeat(3);
        assert_eq!(converted.encode(&text), original.encode(&text), "{name}: {text:?}");
    }
}

#[test]
fn a_switch_for_bytes_that_was_lost_is_found_again() {
    let mut file = Spm::read(&fixture("bpe-bytes.spm")).tokenizer_json();
    file["model"]["byte_fallback"] = json!(false);
    assert_eq!(open(&file).encode("☃").ids, model("bpe-bytes").encode("☃").ids);
}

/// `<s>`, `<unk>` and `</s>`, then pieces; `eng_Latn` is added behind them.
fn bpe() -> Value {
    json!({
        "added_tokens": [
            {"id": 0, "content": "<s>", "special": true},
            {"id": 1, "content": "<unk>", "special": true},
            {"id": 2, "content": "</s>", "special": true},
            {"id": 13, "content": "eng_Latn", "special": true, "normalized": false},
        ],
        "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": true,
            "byte_fallback": false,
            "vocab": {
                "<s>": 0, "<unk>": 1, "</s>": 2, "▁t": 3, "he": 4, "▁the": 5, "the": 6, "▁": 7, "t": 8, "h": 9,
                "e": 10, "s": 11, "<": 12
            },
            "merges": [["▁", "t"], ["h", "e"], ["▁t", "he"], ["▁", "the"], ["t", "he"]],
        },
    })
}

fn unigram() -> Value {
    json!({
        "added_tokens": [{"id": 9, "content": "<extra_id_0>", "special": true}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": true},
        ]},
        "model": {"unk_id": 2, "vocab": [
            ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["a", -3.0], ["b", -3.5], ["▁a", -4.0],
            ["ab", -6.0], ["<", -9.0], ["<extra_id_0>", 0.0],
        ]},
    })
}

#[test]
fn merges_give_the_scores_of_bpe() {
    let model = open(&bpe());
    assert_eq!(texts(&model, " the  het "), ["▁the", "▁", "he", "t"]);
    assert_eq!(texts(&model, "thethes"), ["▁the", "the", "s"]);
    // The first merge that applies wins.
    let cut = |merges: Value| {
        let mut file = bpe();
        file["model"]["vocab"] = json!({"<s>": 0, "<unk>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "c": 6, "ab": 7, "bc": 8});
        file["added_tokens"] = json!([]);
        file["model"]["merges"] = merges;
        texts(&open(&file), "abc")
    };
    assert_eq!(cut(json!([["a", "b"], ["b", "c"]])), ["▁", "ab", "c"]);
    assert_eq!(cut(json!([["b", "c"], ["a", "b"]])), ["▁", "a", "bc"]);
    // Merges as strings, as older files have them.
    let mut file = bpe();
    file["model"]["merges"] = json!(["▁ t", "h e", "▁t he", "▁ the", "t he"]);
    assert_eq!(texts(&open(&file), "thethes"), ["▁the", "the", "s"]);
    // And with escapes, so that nothing can be borrowed from the file.
    let escaped = file.to_string().replace('▁', "\\u2581");
    assert_eq!(texts(&read(escaped.as_bytes()).unwrap().sentencepiece, "the"), ["▁the"]);
}

#[test]
fn unigram_without_a_type_and_with_metaspace_of_old() {
    let model = open(&unigram());
    assert_eq!(texts(&model, "ab  a b"), ["▁a", "b", "▁a", "▁", "b"]);
    assert_eq!((model.unk_id(), model.eos_id(), model.pad_id()), (2, Some(1), Some(0)));
}

#[test]
fn control_words_in_a_text_are_text() {
    let model = open(&bpe());
    let shown = texts(&model, "eng_Latn </s>");
    assert!(!shown.iter().any(|piece| ["eng_Latn", "</s>"].contains(&piece.as_str())), "{shown:?}");
    assert_eq!(model.decode(&[13, 5, 2]), "the");
    let shown = texts(&open(&unigram()), "<extra_id_0>a</s>");
    assert_eq!(shown, ["▁", "<", "<unk>", "a", "<unk>", "a", "<", "<unk>"]);
}

#[test]
fn control_words_need_not_be_listed_as_added() {
    let mut file = unigram();
    file["added_tokens"] = json!([]);
    assert_eq!(texts(&open(&file), "</s>")[..2], ["▁", "<"]);
}

#[test]
fn other_added_words_are_matched_whole() {
    let mut file = unigram();
    file["added_tokens"] =
        json!([{"id": 10, "content": "\n", "special": false}, {"id": 11, "content": "<2pt>"}]);
    let TokenizerJson { sentencepiece, added } = read(file.to_string().as_bytes()).unwrap();
    assert_eq!(texts(&sentencepiece, "a\na<2pt>b"), ["▁a", "\n", "a", "<2pt>", "b"]);
    let expected = AddedToken { id: 11, content: "<2pt>".into(), special: false };
    assert_eq!(added[1], expected);
}

#[test]
fn the_name_of_the_unknown_word_counts_more_than_its_number() {
    let mut file = unigram();
    file["model"]["unk_id"] = json!(1); // </s>
    assert_eq!(open(&file).unk_id(), 2);
    file["model"]["vocab"][2][0] = json!("[UNK]");
    file["model"]["unk_id"] = json!(2);
    assert_eq!(open(&file).unk_id(), 2);
}

#[test]
fn blanks_as_the_stages_say() {
    let mut file = unigram();
    file["pre_tokenizer"] =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"});
    assert_eq!(texts(&open(&file), "a  a "), ["a", "▁", "▁a", "▁"]);
    file["pre_tokenizer"] =
        json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false});
    assert_eq!(texts(&open(&file), "a a"), ["a", "▁a"]);
    file["pre_tokenizer"] = json!(null);
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    assert_eq!(texts(&open(&file), "a a"), ["▁a", "▁a"]);
    file["normalizer"]["normalizers"][0] =
        json!({"type": "Strip", "strip_left": false, "strip_right": true});
    assert_eq!(texts(&open(&file), "a a"), ["a", "▁a"]);
}

#[test]
fn a_tokenizer_and_its_recipe() {
    let file: std::sync::Arc<[u8]> = bpe().to_string().into_bytes().into();
    let tokenizer =
        Tokenizer::sentencepiece("tokenizer.json", file.clone(), UserDefinedScore::Zero).unwrap();
    let words: Vec<&str> = (0..tokenizer.size() as u32).map(|id| tokenizer.token(id)).collect();
    let list: std::sync::Arc<[u8]> = json!(words).to_string().into_bytes().into();
    let spm = Some(("models/tokenizer.json", file));
    let pieces = Tokenizer::pieces(spm, ("words.json", list), PieceOptions::default()).unwrap();
    for tokenizer in [tokenizer, pieces] {
        assert_eq!(tokenizer.encode("the hes").ids, [5, 7, 4, 11]);
        let again = Tokenizer::from_recipe(&tokenizer.recipe()).unwrap();
        assert_eq!(again.encode("the hes").ids, [5, 7, 4, 11]);
        assert_eq!(again.decode(&[5, 7, 4, 11, 2]), "the hes");
    }
}

/// Files that are refused, with a part of the message.
fn refused() -> Vec<(Value, &'static str)> {
    let with = |mut file: Value, path: &str, value: Value| {
        *file.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        file
    };
    let added = |id: u64, content: &str| {
        let mut file = bpe();
        file["added_tokens"].as_array_mut().unwrap().push(json!({"id": id, "content": content}));
        file
    };
    let stage = |kind: &str| json!({"type": kind});
    let precompiled = |map: &str| json!({"type": "Precompiled", "precompiled_charsmap": map});
    let replace =
        |content: &str| json!({"type": "Replace", "pattern": {"Regex": "x+"}, "content": content});
    let set = |name: &str, value: Value| {
        let mut file = bpe();
        file["model"][name] = value;
        file
    };
    let long = "x".repeat(9000);
    vec![
        (json!([]), "line 1"),
        (json!({}), "missing field `model`"),
        (set("vocab", json!(7)), "an object of pieces and ids"),
        (set("vocab", json!({})), "there are only 4 words"),
        (set("vocab", json!([["<unk>", 0.0]])), "`vocab` is a list"),
        (set("vocab", json!([[1, 0.0]])), "expected a string"),
        (set("type", json!("Unigram")), "`vocab` is an object"),
        (set("type", json!("WordPiece")), "\"WordPiece\" is not supported"),
        (set("unk_token", json!("[UNK]")), "no unknown word \"[UNK]\""),
        (set("fuse_unk", json!(false)), "fuse_unk"),
        (set("ignore_merges", json!(true)), "ignore_merges"),
        (set("end_of_word_suffix", json!("</w>")), "marks within or behind words"),
        (set("byte_fallback", json!(true)), "<0x00> is missing"),
        (set("merges", json!([["▁", "x"]])), "merge 0: \"x\" is not in the vocabulary"),
        (
            set("merges", json!([["h", "e"], ["h", "h"]])),
            "merge 1: \"hh\" is not in the vocabulary",
        ),
        (set("merges", json!(["a"])), "two pieces"),
        (set("merges", json!(["a b c"])), "two pieces"),
        (set("merges", json!([["a"]])), "two pieces"),
        (set("merges", json!([["a", "b", "c"]])), "two pieces"),
        (set("merges", json!([["h", "e"]])), "this is not SentencePiece's BPE"),
        (with(bpe(), "/model/vocab/he", json!(-1)), "-1"),
        (with(bpe(), "/model/vocab/he", json!(99)), "word \"he\": its id is 99"),
        (with(bpe(), "/model/vocab/he", json!(u64::MAX)), "its id is 18446744073709551615"),
        (with(bpe(), "/model/vocab/he", json!(15)), "no word has the id 4"),
        (with(bpe(), "/model/vocab/he", json!(5)), "its id 5 is that of"),
        (added(5, "zul_Latn"), "its id 5 is that of \"▁the\" too"),
        (added(14, "eng_Latn"), "it has two ids, 13 and 14"),
        (added(14, ""), "the word with the id 14 is empty"),
        (added(14, "a\0b"), "contains NUL"),
        (added(14, &long), "piece 14: 9000 bytes long"),
        (with(unigram(), "/model/vocab/4", json!(["b", -1.0])), "two ids, 4 and 5"),
        (with(unigram(), "/model/vocab/4", json!(["a", 1e300])), "piece 4: the score is inf"),
        (
            with(with(unigram(), "/model/vocab/2/0", json!("x")), "/model/unk_id", json!(99)),
            "no unknown word \"<unk>\"",
        ),
        (
            with(bpe(), "/normalizer", stage("Lowercase")),
            "normalizer: \"Lowercase\" is not supported",
        ),
        (
            with(bpe(), "/normalizer", replace("y")),
            "\"Replace\" of \"x+\" by \"y\" is not supported",
        ),
        (with(bpe(), "/normalizer", stage("Replace")), "without a pattern"),
        (with(bpe(), "/normalizer/pattern", json!({"a\nb": "x"})), "unknown variant `a b`"),
        (with(bpe(), "/normalizer", precompiled("?")), "not base64"),
        (
            with(bpe(), "/normalizer", precompiled("AAAA")),
            "normalizer_spec: the character map has 3 bytes",
        ),
        (
            with(bpe(), "/normalizer", precompiled("/////w==")),
            "the character map's trie has 4294967295",
        ),
        (with(bpe(), "/pre_tokenizer", json!(null)), "nothing turns blanks into ▁"),
        (
            with(bpe(), "/pre_tokenizer", stage("ByteLevel")),
            "pre_tokenizer: \"ByteLevel\" is not supported",
        ),
        (with(bpe(), "/pre_tokenizer/replacement", json!("_")), "that writes \"_\""),
        (with(bpe(), "/pre_tokenizer/prepend_scheme", json!("last")), "\"last\""),
    ]
}

#[test]
fn what_cannot_be_used_gets_one_clear_line() {
    for (file, part) in refused() {
        let Err(error) = read(file.to_string().as_bytes()) else { panic!("no error: {part}") };
        let error = error.to_string();
        assert!(error.contains(part) && error.starts_with("tokenizer.json: "), "{part}: {error}");
        assert!(error.lines().count() == 1 && error.chars().count() < 300, "{error}");
    }
}

#[test]
fn hostile_files_are_refused_quickly() {
    let mega = 10_000_000;
    let sequence = r#"{"type": "Sequence", "normalizers": ["#;
    let pieces: Vec<String> = (1..2000).map(|n| format!("{:?}: {n}", "a".repeat(n))).collect();
    let files = [
        "[".repeat(mega),
        format!(r#"{{"post_processor": {}"#, "[".repeat(mega)),
        format!(r#"{{"post_processor": {}"#, r#"{"a":"#.repeat(mega / 5)),
        format!(r#"{{"normalizer": {}"#, sequence.repeat(mega / sequence.len())),
        format!(r#"{{"model": {{"vocab": {}"#, "[".repeat(mega)),
        format!(r#"{{"model": {{"vocab": {{"a": "{}"}}}}}}"#, "x".repeat(mega)),
        format!(r#"{{"model": {{"vocab": {{"<unk>": 0, {}}}}}}}"#, pieces.join(", ")),
        String::from_utf8(vec![b'{'; mega]).unwrap(),
    ];
    for file in files {
        let start = Instant::now();
        let error = read(file.as_bytes()).unwrap_err().to_string();
        let elapsed = start.elapsed();
        assert!(error.chars().count() < 300, "{error}");
        assert!(elapsed < Duration::from_secs(3), "{elapsed:?}: {error}");
    }
    for length in 0..bpe().to_string().len() {
        assert!(read(&bpe().to_string().as_bytes()[..length]).is_err(), "{length} bytes");
    }
}

// The small models of `shared/models/more`.

const GOLDEN: [(&str, &str); 5] = [
    ("nllb", "sentencepiece.bpe.model"),
    ("mbart50", "sentencepiece.bpe.model"),
    ("t5-v10", "spiece.model"),
    ("t5-v11", "spiece.model"),
    ("madlad", "spiece.model"),
];

fn golden(path: &str) -> Option<Vec<u8>> {
    shared(&format!("models/more/{path}"))
}

fn golden_lines(path: &str) -> Vec<Value> {
    let bytes = golden(path).unwrap();
    lines(&bytes).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The `.spm` file and the `tokenizer.json` of a folder.
fn golden_pair(folder: &str, file: &str) -> Option<(SentencePiece, TokenizerJson)> {
    let bytes = golden(&format!("{folder}/hf/{file}"))?;
    let original = SentencePiece::from_bytes(folder, &bytes, UserDefinedScore::Zero).unwrap();
    let json = read(&golden(&format!("{folder}/hf/tokenizer.json"))?).unwrap();
    Some((original, json))
}

#[test]
fn golden_models_are_segmented_as_by_sentencepiece() {
    let mut texts_read = Vec::new();
    let data = ["flores/devtest.en", "flores/devtest.pt", "flores/devtest.zh", "text/scripts.txt"];
    for path in
        data.map(|path| format!("data/{path}")).iter().chain([&"models/more/inputs.txt".into()])
    {
        let Some(bytes) = shared(path) else { return };
        texts_read.extend(lines(&bytes));
    }
    texts_read.extend(generated_lines(5, 2000));
    for (folder, file) in GOLDEN {
        let Some((original, json)) = golden_pair(folder, file) else { return };
        for line in &texts_read {
            let expected = original.encode(line);
            let found = json.sentencepiece.encode(line);
            assert_eq!(found.spans, expected.spans, "{folder}: {line:?}");
            assert_eq!(
                texts(&json.sentencepiece, line),
                texts(&original, line),
                "{folder}: {line:?}"
            );
        }
    }
}

#[test]
fn golden_models_give_the_ids_of_sentencepiece_and_of_transformers() {
    // Where `transformers` differs: blanks at the end (46), U+2581 in the text (53), and for MADLAD `</s>` in place
    // of `<unk>`; its words for languages are cut out first.
    let differ: [&[usize]; 5] =
        [&[46, 53], &[46, 53], &[53], &[53], &[39, 50, 51, 52, 53, 54, 57, 58, 59, 60]];
    for ((folder, file), differ) in GOLDEN.into_iter().zip(differ) {
        let Some((_, json)) = golden_pair(folder, file) else { return };
        let model = &json.sentencepiece;
        let controls: Vec<u32> =
            json.added.iter().filter(|token| token.special).map(|token| token.id).collect();
        let is_text = |id: &u32| !controls.contains(id) || *id == model.unk_id();
        let mut different = Vec::new();
        let cases = golden_lines(&format!("{folder}/source.jsonl"));
        for (number, case) in (1..).zip(&cases) {
            let text = case["text"].as_str().unwrap();
            let theirs: Vec<u32> = ids(&case["ids"]).into_iter().filter(is_text).collect();
            // SentencePiece puts its blank before MADLAD's word for the language.
            let blank = usize::from(folder == "madlad");
            if model.encode(text).ids[blank..] != theirs {
                different.push(number);
            }
        }
        assert_eq!(different, differ, "{folder}");
        if folder == "mbart50" {
            continue; // It has no answers of SentencePiece.
        }
        let answers = golden_lines(&format!("{folder}/source-other.jsonl"));
        for (case, answer) in cases.iter().zip(answers) {
            let text = case["text"].as_str().unwrap();
            assert_eq!(
                model.encode(text).ids,
                ids(&answer["sentencepiece_ids"]),
                "{folder}: {text:?}"
            );
        }
    }
}

#[test]
fn words_of_fairseq_are_those_of_tokenizer_json_and_of_converters() {
    let codes = [multilingual::NLLB.as_slice(), multilingual::MBART_50.as_slice()];
    for ((folder, file), codes) in GOLDEN.into_iter().zip(codes) {
        let Some((original, json)) = golden_pair(folder, file) else { return };
        let extra = codes.iter().copied().chain(["<mask>"]);
        let words = multilingual::fairseq_words(file, &original, extra).unwrap();
        assert!(json.sentencepiece.pieces().eq(&words), "{folder}");
        let converted = golden(&format!("{folder}/ct2-float32/shared_vocabulary.json")).unwrap();
        let converted: Vec<String> = serde_json::from_slice(&converted).unwrap();
        assert_eq!(converted[..words.len()], words, "{folder}");
    }
}

#[test]
fn words_of_fairseq_need_its_control_pieces() {
    let words =
        |name: &str| multilingual::fairseq_words("x.model", &model(name), ["en_XX", "<mask>"]);
    let bpe = words("bpe").unwrap();
    let own = model("bpe");
    assert_eq!(bpe[..4], ["<s>", "<pad>", "</s>", "<unk>"]);
    assert!((3..own.len()).all(|id| own.piece(id as u32) == Some(&bpe[id + 1])));
    assert_eq!(bpe[own.len() + 1..], ["en_XX", "<mask>"]);
    let error = words("unigram").unwrap_err().to_string();
    assert!(error.starts_with("x.model: pieces: they begin with [\"</s>\", \"<unk>\""), "{error}");
}

#[test]
fn words_of_m2m100_are_those_of_the_converter() {
    let Some(bytes) = golden("m2m100/hf/vocab.json") else { return };
    let vocabulary = peregrine_text::Vocabulary::from_json("vocab.json", &bytes).unwrap();
    let words = multilingual::m2m100_words(&vocabulary, &multilingual::M2M_100);
    let converted = golden("m2m100/ct2-float32/shared_vocabulary.json").unwrap();
    assert_eq!(words, serde_json::from_slice::<Vec<String>>(&converted).unwrap());
}
