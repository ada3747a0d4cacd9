//! Word lists: CTranslate2's vocabulary maps against that library itself (`fixtures/make_vmap.py` made
//! the files), and lists for a sentence against lists for a batch.

use peregrine::{OpenOptions, Options, Request, Scope, ShortlistChoice, Translator, Workers};
use peregrine_tests::{fixture, open};
use serde_json::Value;

fn vmap() -> Translator {
    let options = OpenOptions { shortlist: ShortlistChoice::Vmap, ..OpenOptions::default() };
    open(&fixture("vmap"), &options)
}

fn expected() -> Value {
    let text = std::fs::read_to_string(fixture("vmap").join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn options(translator: &Translator, expected: &Value, beam: usize) -> Options {
    let mut options = translator.options().with_beam(beam);
    options.search.max_length = Some(expected["longest"].as_u64().unwrap() as usize);
    options.scores = true;
    options
}

fn check(translator: &Translator, beam: usize, text: impl Fn(&Value) -> &str) -> (usize, f64) {
    let expected = expected();
    let cases = expected["cases"].as_array().unwrap();
    let sources: Vec<&str> = cases.iter().map(|case| case["source"].as_str().unwrap()).collect();
    let requests: Vec<Request<'_>> = sources.iter().map(|line| Request::new(line)).collect();
    let options = options(translator, &expected, beam);
    let translations = translator.translate_batch(&requests, &options).unwrap();
    let mut furthest = 0.0_f64;
    let mut same = 0;
    for (ours, case) in translations.iter().zip(cases) {
        let best = &ours.alternatives[0];
        if best.tokens.join(" ") != text(case) {
            println!("{}: {:?}, not {:?}", case["source"], best.tokens, text(case));
            continue;
        }
        same += 1;
        if let Some(score) = case[format!("beam{beam}")]["score"].as_f64() {
            furthest = furthest.max((score - f64::from(best.score)).abs());
        }
    }
    assert_eq!(translations.len(), cases.len());
    (same, furthest)
}

#[test]
fn vocabulary_maps_as_in_ctranslate2() {
    let translator = vmap();
    for beam in [1, 4] {
        let name = format!("beam{beam}");
        let (same, furthest) =
            check(&translator, beam, |case| case[&name]["text"].as_str().unwrap());
        assert_eq!(same, 40, "beam {beam}");
        assert!(furthest < 1e-4, "beam {beam}: a score is {furthest} off");
    }
}

/// The library uses a map when asked only.
#[test]
fn a_map_beside_a_model_is_not_used_unasked() {
    let translator = open(&fixture("vmap"), &OpenOptions::default());
    assert!(translator.model().shortlist.is_none());
    assert!(translator.model().notes.iter().any(|note| note.contains("--shortlist vmap")));
    let (same, _) = check(&translator, 1, |case| case["without"].as_str().unwrap());
    assert_eq!(same, 40);
}

#[test]
fn lists_of_a_batch_are_the_union() {
    let translator = vmap();
    let lines = ["w5 w6 w7", "w10 w11 w12 w13"];
    let requests = lines.map(Request::new);
    let options = options(&translator, &expected(), 1);
    let mut workers = translator.workers();
    let texts = |requests: &[Request<'_>], workers: &Workers| -> Vec<String> {
        let translations = translator.translate_batch_with(requests, &options, workers, None);
        translations.unwrap().iter().map(|t| t.text().to_owned()).collect()
    };
    let alone: Vec<String> =
        requests.iter().flat_map(|r| texts(std::slice::from_ref(r), &workers)).collect();
    assert_eq!(texts(&requests, &workers), alone, "a sentence's words are its own");
    workers.shortlist_scope = Scope::Batch;
    let one = texts(&requests[..1], &workers);
    assert_eq!(one[0], alone[0], "alone it is a batch");
    let list = |line: &str| {
        let model = translator.model();
        model.shortlist.as_ref().unwrap().select(&model.source.encode(line).ids)
    };
    // A word of the other's list may be used now; every word is of one of the lists.
    let allowed: Vec<u32> = lines.iter().flat_map(|line| list(line)).collect();
    for text in texts(&requests, &workers) {
        for id in translator.model().target.encode(&text).ids {
            assert!(allowed.contains(&id), "{text}");
        }
    }
}
