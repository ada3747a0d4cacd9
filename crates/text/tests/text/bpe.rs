//! BPE codes against the answers of `subword-nmt`.

use std::time::Instant;

use crate::common::{fixture, json};
use peregrine_text::BpeCodes;

#[test]
fn words_are_split_the_same_way() {
    for name in ["codes-0.1", "codes-0.2", "codes-shuffled"] {
        let file = format!("{name}.bpe");
        let codes = BpeCodes::from_bytes(&file, &fixture(&file)).unwrap();
        let answers = json(&format!("{name}.json"));
        let answers = answers.as_array().unwrap();
        assert!(answers.len() > 200);
        for answer in answers {
            let word = answer[0].as_str().unwrap();
            let units = codes.segment(word);
            let last = units.len() - 1;
            let marked: Vec<String> = (units.iter().enumerate())
                .map(|(at, unit)| if at < last { format!("{unit}@@") } else { unit.to_string() })
                .collect();
            assert_eq!(serde_json::json!(marked), answer[1], "{name}: {word:?}");
        }
    }
}

#[test]
fn an_endless_word_takes_time_in_proportion() {
    for name in ["codes-0.1.bpe", "codes-0.2.bpe"] {
        let codes = BpeCodes::from_bytes(name, &fixture(name)).unwrap();
        for word in ["ba".repeat(50_000), "a".repeat(100_000)] {
            let start = Instant::now();
            assert_eq!(codes.segment(&word).concat(), word);
            let elapsed = start.elapsed();
            assert!(elapsed.as_millis() < 900, "{name}: {elapsed:?}");
        }
    }
}
