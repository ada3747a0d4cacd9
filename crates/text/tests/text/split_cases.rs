//! Where sentences end, in 193 cases of nine languages beside the repository.

use crate::common::{lines, shared};
use peregrine_text::sentences;
use serde_json::Value;

/// Cases that are split otherwise, by their first sentence. The list may only shrink.
const ALLOWED: &[&str] = &[
    "The variable is called x.",
    // Dots that end nothing elsewhere, and a name that ends in a full stop.
    "他等了很久……",
    "モーニング娘。のコンサートに行った。",
];

#[test]
fn sentences_end_where_they_should() {
    let Some(cases) = shared("data/text-features/split-cases.jsonl") else { return };
    let (mut right, mut wrong) = (0, Vec::new());
    for line in lines(&cases) {
        let case: Value = serde_json::from_str(&line).unwrap();
        let text = case["text"].as_str().unwrap();
        let expected: Vec<&str> =
            case["sentences"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
        let found: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
        if found == expected {
            right += 1;
            assert!(!ALLOWED.contains(&expected[0]), "{:?} is right now", expected[0]);
        } else {
            println!("{found:?}, not {expected:?}");
            wrong.push(expected[0].to_owned());
        }
    }
    println!("{right} of {} cases", right + wrong.len());
    let unknown: Vec<&String> = wrong.iter().filter(|case| !ALLOWED.contains(&&***case)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
