//! How often the language of a text is told right, on the texts beside the repository.

use crate::common::{lines, shared};
use peregrine_text::detect;

/// The languages of data/text/scripts.txt, 60 lines each.
const SCRIPTS: [&str; 21] = [
    "zh", "ja", "ko", "ar", "ru", "hi", "th", "he", "fa", "el", "uk", "bg", "ta", "te", "bn", "vi",
    "tr", "cs", "is", "fi", "hu",
];

/// The languages among which is chosen.
const THIRTY: [&str; 30] = [
    "en", "pt", "zh", "ja", "ko", "ar", "ru", "hi", "th", "he", "fa", "el", "uk", "bg", "ta", "te",
    "bn", "vi", "tr", "cs", "is", "fi", "hu", "de", "fr", "es", "it", "nl", "pl", "sv",
];

/// Lines with their languages.
fn samples() -> Option<Vec<(&'static str, String)>> {
    let mut samples = Vec::new();
    for code in ["en", "pt", "zh"] {
        let text = shared(&format!("data/flores/devtest.{code}"))?;
        samples.extend(lines(&text).into_iter().map(|line| (code, line)));
    }
    let scripts = lines(&shared("data/text/scripts.txt")?);
    assert_eq!(scripts.len(), 60 * SCRIPTS.len());
    for (number, line) in scripts.into_iter().enumerate() {
        // Chinese is there already.
        if number >= 60 {
            samples.push((SCRIPTS[number / 60], line));
        }
    }
    Some(samples)
}

#[derive(Default)]
struct Count {
    right: usize,
    all: usize,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.right += usize::from(right);
        self.all += 1;
    }

    fn share(&self) -> f64 {
        self.right as f64 / self.all.max(1) as f64
    }
}

/// Shares of right answers: of all lines, and as a mean over the languages; lines cut to so many characters.
fn measure(samples: &[(&'static str, String)], length: usize, among: &[&str]) -> (f64, f64) {
    let mut all = Count::default();
    let mut by_language: Vec<(&str, Count)> = Vec::new();
    let (mut reliable, mut agreed, mut disputed) =
        (Count::default(), Count::default(), Count::default());
    for (code, line) in samples {
        let line: String = line.chars().take(length).collect();
        let found = detect(&line, among);
        let right = found.language == Some(code);
        all.add(right);
        match found.confidence {
            _ if found.reliable => reliable.add(right),
            confidence if confidence >= 0.9 => agreed.add(right),
            _ => disputed.add(right),
        }
        match by_language.last_mut().filter(|(known, _)| known == code) {
            Some((_, count)) => count.add(right),
            None => {
                let mut count = Count::default();
                count.add(right);
                by_language.push((code, count));
            }
        }
    }
    let mean =
        by_language.iter().map(|(_, count)| count.share()).sum::<f64>() / by_language.len() as f64;
    let what =
        if length == usize::MAX { "full".to_owned() } else { format!("{length} characters") };
    println!(
        "{what}, {} languages: {:.1} % of all, mean of languages {:.1} %",
        among.len(),
        100.0 * all.share(),
        100.0 * mean
    );
    for (name, count) in [("reliable", reliable), ("both agree", agreed), ("in doubt", disputed)] {
        println!(
            "  {name}: {} of {} right, {:.1} %",
            count.right,
            count.all,
            100.0 * count.share()
        );
    }
    let low: Vec<String> = by_language
        .iter()
        .filter(|(_, count)| count.share() < 0.95)
        .map(|(code, count)| format!("{code} {:.0} %", 100.0 * count.share()))
        .collect();
    println!("  below 95 %: {}", low.join(", "));
    (all.share(), mean)
}

#[test]
fn languages_are_told_apart() {
    let Some(samples) = samples() else { return };
    let (all, mean) = measure(&samples, usize::MAX, &THIRTY);
    assert!(all >= 0.98 && mean >= 0.95, "full lines: {all} {mean}");
    measure(&samples, 40, &THIRTY);
    let (all, mean) = measure(&samples, 20, &THIRTY);
    assert!(all >= 0.88 && mean >= 0.88, "20 characters: {all} {mean}");
    measure(&samples, usize::MAX, &[]);
    measure(&samples, 20, &[]);
}
