//! Techniques are a translator's own: others in the process go on with theirs.

use peregrine::measure::Technique;
use peregrine::{Compute, Request, Translator, builtin_model};

const LINES: [&str; 4] = [
    "Good morning!",
    "Two dogs play in the snow while three children and their mother look at them from afar.",
    "Where is the station, and when does the next train to the old town by the sea leave from it?",
    "The weather is fine.",
];

fn without(techniques: &[Technique], compute: Compute) -> Translator {
    let compute = Compute { without: techniques.to_vec(), ..compute };
    Translator::prepare(builtin_model().expect("the built-in model"), &compute).expect("a CPU")
}

/// Texts, and scores to the last bit.
fn results(translator: &Translator) -> Vec<(String, Vec<u32>)> {
    let mut options = translator.options().with_beam(4);
    options.scores = true;
    let translations = translator.translate_batch(&LINES.map(Request::new), &options);
    let translations = translations.expect("a translation");
    let best = translations.iter().map(|t| &t.alternatives[0]);
    best.map(|best| {
        (best.text.clone(), best.token_scores.iter().map(|score| score.to_bits()).collect())
    })
    .collect()
}

#[test]
#[cfg_attr(not(feature = "builtin"), ignore = "no built-in model")]
fn translators_with_and_without_agree_at_the_same_time() {
    let off: Vec<Technique> =
        Technique::ALL.into_iter().filter(|technique| technique.keeps_bits()).collect();
    for compute in [Compute::int8, Compute::float32] {
        let translators = [&[][..], &off].map(|off| without(off, compute()));
        let [all, none] = std::thread::scope(|scope| {
            let start = |translator| scope.spawn(move || [0; 4].map(|_| results(translator)));
            translators.each_ref().map(start).map(|thread| thread.join().unwrap())
        });
        assert_eq!(all, none);
    }
}

/// Scores tell whether this one technique is on.
#[test]
#[cfg_attr(not(feature = "builtin"), ignore = "no built-in model")]
fn what_one_translator_lacks_another_has() {
    let all = without(&[], Compute::float32());
    let expected = results(&all);
    let other = without(&[Technique::SixteenRows], Compute::float32());
    assert_ne!(results(&other), expected);
    assert_eq!(results(&all), expected);
}
