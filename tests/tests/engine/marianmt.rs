//! MarianMT answers as `transformers` does, with every setting of its search. `bench/marianmt.py record` wrote the answers.

use std::path::Path;

use peregrine::{OpenOptions, Request, Translator};
use peregrine_tests::json::{change_json, changed_copy, floats, jsonl, numbers};
use peregrine_tests::{TIE, fixture, open};
use serde_json::{Map, Value, json};

fn opened(folder: &Path) -> Translator {
    open(folder, &OpenOptions::default())
}

#[test]
fn texts_are_numbered_as_by_transformers() {
    for kind in ["a", "d"] {
        let folder = fixture("marianmt");
        let translator = opened(&folder.join(kind));
        let model = translator.model();
        for line in jsonl(&folder.join(format!("{kind}.ids.jsonl"))) {
            let text = line["text"].as_str().unwrap();
            for (key, tokenizer) in [("source", &model.source), ("target", &model.target)] {
                let mut ids = tokenizer.encode(text).ids;
                ids.push(tokenizer.eos());
                assert_eq!(ids, numbers(&line[key]), "{kind}, {key}: {text:?}");
            }
        }
    }
}

#[test]
fn ids_are_read_as_by_transformers() {
    for kind in ["a", "d"] {
        let folder = fixture("marianmt");
        let translator = opened(&folder.join(kind));
        for line in jsonl(&folder.join(format!("{kind}.texts.jsonl"))) {
            let ids = numbers(&line["ids"]);
            let text = translator.model().target.decode(&ids);
            assert_eq!(text, line["text"].as_str().unwrap(), "{kind}: {ids:?}");
        }
    }
}

/// Each directory says how it is searched, and both tools follow it.
#[test]
fn lists_are_those_of_transformers() {
    let folder = fixture("marianmt");
    let lines = jsonl(&folder.join("a.lists.jsonl"));
    let mut compared = 0;
    for setting in lines.chunk_by(|a, b| a["setting"] == b["setting"]) {
        let name = setting[0]["setting"].as_str().unwrap();
        let copy = with_settings(&folder.join("a"), &setting[0]["changes"]);
        let translator = opened(copy.path());
        let beam = translator.model().search.beam;
        let options = translator.options().with_n_best(beam).with_scores(true);
        let texts: Vec<&str> = setting.iter().map(|line| line["text"].as_str().unwrap()).collect();
        let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
        let answers = translator.translate_batch(&requests, &options).unwrap();
        for (answer, line) in answers.iter().zip(setting) {
            let model = translator.model();
            let theirs: Vec<Vec<u32>> =
                line["ids"].as_array().unwrap().iter().map(numbers).collect();
            let ours = answer.alternatives.iter().map(|one| {
                let words = one.tokens.iter().map(|token| model.target.id(token).unwrap());
                words.chain(one.ended.then(|| model.target.eos())).collect::<Vec<u32>>()
            });
            let same = ours.eq(theirs.iter().cloned());
            let is_near =
                |(ours, theirs): (f32, f32)| (ours - theirs).abs() <= TIE * theirs.abs().max(1.0);
            let scores = answer.alternatives.iter().map(|one| one.score);
            let near = match beam {
                1 => same,
                _ => scores.zip(floats(&line["scores"])).all(is_near),
            };
            assert!(near, "{name}: {answer:?}\n{line}");
            assert_eq!(answer.alternatives.len(), theirs.len(), "{name}");
            compared += usize::from(same);
        }
    }
    // Others are near-ties, as their scores are the same place by place.
    assert!(compared * 50 >= lines.len() * 49, "{compared} of {} lists", lines.len());
}

/// A copy of a checkpoint with the settings of a row.
fn with_settings(folder: &Path, changes: &Value) -> tempfile::TempDir {
    let mut generation: Map<String, Value> = changes.as_object().unwrap().clone();
    let config = generation.remove("config").unwrap_or_else(|| json!({}));
    let alone = generation.remove("alone");
    let copy = changed_copy(folder, "generation_config.json", &generation.into());
    change_json(&copy.path().join("config.json"), &config);
    if let Some(fields) = alone {
        change_json(&copy.path().join("config.json"), &fields);
        std::fs::remove_file(copy.path().join("generation_config.json")).unwrap();
    }
    copy
}
