//! Any bytes as a file of terms: refused, or found in any text without a fault.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_text::Glossary;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for name in ["terms.tsv", "terms.csv"] {
        let Ok(glossary) = Glossary::read(name, bytes) else { continue };
        let mut end = 0;
        for found in glossary.find(&text) {
            assert!(found.range.start >= end && text.get(found.range.clone()).is_some());
            end = found.range.end;
        }
    }
});
