//! Networks of "Sharp Models on Dull Hardware" against recorded outputs, and what each of its
//! techniques changes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine::measure::Functions;
use peregrine::{
    Compute, Dictionary, OpenOptions, Options, Request, ShortlistChoice, ShortlistFile, Speedups,
    Translation, Translator,
};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    peregrine_tests::shared("models/golden/rnnfc")
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

fn open_with(
    folder: &Path,
    names: &[&str],
    compute: &Compute,
    shortlist: ShortlistChoice,
) -> Translator {
    let paths: Vec<PathBuf> =
        names.iter().map(|name| folder.join(format!("{name}.safetensors"))).collect();
    let options = OpenOptions {
        vocabularies: Some((folder.join("vocab.en.txt"), folder.join("vocab.de.txt"))),
        shortlist,
        ..OpenOptions::default()
    };
    Translator::prepare(peregrine::model::open(&paths, &options).unwrap(), compute).unwrap()
}

fn open(folder: &Path, names: &[&str], compute: &Compute) -> Translator {
    open_with(folder, names, compute, ShortlistChoice::Auto)
}

fn lines(folder: &Path, side: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(format!("test.{side}"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn options(translator: &Translator, beam: usize) -> Options {
    let mut options = translator.options().with_beam(beam);
    options.n_best = beam;
    options.scores = true;
    options.alignments = true;
    options
}

fn translate(translator: &Translator, folder: &Path, options: &Options) -> Vec<Translation> {
    let lines = lines(folder, "en");
    let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
    translator.translate_batch(&requests, options).unwrap()
}

/// How many best translations are the same.
fn same_best(a: &[Translation], b: &[Translation]) -> usize {
    let tokens = |t: &Translation| t.alternatives[0].tokens.clone();
    a.iter().zip(b).filter(|(a, b)| tokens(a) == tokens(b)).count()
}

/// No short cut at all.
fn plain() -> Compute {
    Compute { speedups: Speedups::OFF, functions: Functions::Library, ..Compute::float32() }
}

const MODELS: [&[&str]; 4] = [&["s1"], &["s4"], &["s5"], &["s4", "s4b"]];

#[test]
fn recorded_outputs_are_found() {
    let Some(folder) = folder() else { return };
    let runs: [(&str, &[&str], usize); 5] = [
        ("s4.greedy", &["s4"], 1),
        ("s1.beam6", &["s1"], 6),
        ("s4.beam6", &["s4"], 6),
        ("s5.beam6", &["s5"], 6),
        ("ensemble-s4-s4b.beam6", &["s4", "s4b"], 6),
    ];
    for (file, names, beam) in runs {
        for compute in [Compute::float32(), plain()] {
            let translator = open(&folder, names, &compute);
            let translations = translate(&translator, &folder, &options(&translator, beam));
            let (mut same, mut count, mut line, mut rank) = (0, 0, u64::MAX, 0);
            for recorded in unpacked(&folder.join(format!("{file}.jsonl.gz"))).lines() {
                let recorded: Value = serde_json::from_str(recorded).unwrap();
                let number = recorded["line"].as_u64().unwrap();
                rank = if number == line { rank + 1 } else { 0 };
                line = number;
                count += 1;
                let got = &translations[line as usize].alternatives[rank];
                if got.tokens.join(" ") != recorded["text"].as_str().unwrap() {
                    continue;
                }
                same += 1;
                let want = recorded["score"].as_f64().unwrap();
                assert!((f64::from(got.score) - want).abs() < 1e-3, "{file} {line}");
                let attended = recorded["attended"].as_array().unwrap();
                let alignment = translations[line as usize].alignment(rank);
                for (row, want) in alignment.iter().zip(attended) {
                    let most = row.iter().cloned().fold(0.0, f32::max);
                    let at = row[want.as_u64().unwrap() as usize];
                    assert!(most - at < 1e-4, "{file} {line}: {at} of {most}");
                }
            }
            assert!(same * 1000 >= count * 995, "{file}: {same} of {count}");
        }
    }
}

#[test]
fn given_translations_have_the_recorded_scores() {
    let Some(folder) = folder() else { return };
    let (sources, targets) = (lines(&folder, "en"), lines(&folder, "de"));
    let pairs: Vec<(&str, &str)> =
        sources.iter().zip(&targets).map(|(s, t)| (&**s, &**t)).collect();
    for name in ["s1", "s4", "s4b", "s5"] {
        let translator = open(&folder, &[name], &Compute::float32());
        let scored = translator.score(&pairs, &translator.options()).unwrap();
        let recorded = unpacked(&folder.join(format!("{name}.reference-logprobs.jsonl.gz")));
        for (scored, recorded) in scored.iter().zip(recorded.lines()) {
            let recorded: Value = serde_json::from_str(recorded).unwrap();
            let want = recorded["sum"].as_f64().unwrap();
            assert!((f64::from(scored.score) - want).abs() < 1e-3 * want.abs(), "{name}");
        }
    }
}

/// Techniques 2, 3, 5 and 8 leave every output as it is, 4 within rounding.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn short_cuts_change_nothing() {
    let Some(folder) = folder() else { return };
    let off = Speedups::OFF;
    let speedups = [
        Speedups { embeddings: 8000, ..off },
        Speedups { embeddings: 700, ..off },
        Speedups { attention: true, ..off },
        Speedups { merge: true, ..off },
        Speedups { reuse: true, ..off },
    ];
    for names in MODELS {
        let base = open(&folder, names, &plain());
        let options = options(&base, 6);
        let expected = translate(&base, &folder, &options);
        let exact = |compute: Compute, tolerance: f32| {
            let got = translate(&open(&folder, names, &compute), &folder, &options);
            assert!(same_best(&got, &expected) >= expected.len() - 1, "{names:?}");
            for (got, want) in got.iter().zip(&expected) {
                let (got, want) = (&got.alternatives[0], &want.alternatives[0]);
                assert!((got.score - want.score).abs() <= tolerance, "{names:?}");
            }
        };
        for speedups in speedups {
            let tolerance = if speedups.attention { 1e-3 } else { 0.0 };
            exact(Compute { speedups, ..plain() }, tolerance);
        }
        exact(Compute { functions: Functions::Fast, ..plain() }, 1e-3);
    }
}

/// Technique 1: at least 95 % of the best outputs and 99.5 % of the teacher-forced best words.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn sixteen_bits_are_nearly_enough() {
    let Some(folder) = folder() else { return };
    for names in MODELS {
        let float = open(&folder, names, &Compute::float32());
        let fixed = open(&folder, names, &Compute::int16());
        assert_eq!(fixed.precision(), "int16");
        let options = options(&float, 6);
        let (a, b) = (translate(&float, &folder, &options), translate(&fixed, &folder, &options));
        let same = same_best(&a, &b);
        println!("{names:?}: {same} of {} best outputs", a.len());
        assert!(same * 100 >= a.len() * 95, "{names:?}: {same} of {}", a.len());
        let (sure, count) = forced_words(&float, &fixed, &folder);
        println!("{names:?}: {sure} of {count} teacher-forced best words");
        assert!(sure * 1000 >= count * 995, "{names:?}: {sure} of {count}");
    }
}

/// Words that both find best after the beginnings of the references.
fn forced_words(a: &Translator, b: &Translator, folder: &Path) -> (usize, usize) {
    let (sources, targets) = (lines(folder, "en"), lines(folder, "de"));
    let mut prefixes = Vec::new();
    for (source, target) in sources.iter().zip(&targets) {
        let words: Vec<&str> = target.split(' ').collect();
        prefixes.extend((0..=words.len()).map(|n| (source, words[..n].join(" "))));
    }
    let best = |translator: &Translator| -> Vec<Option<String>> {
        let requests: Vec<Request<'_>> =
            prefixes.iter().map(|(text, prefix)| Request::new(text).with_prefix(prefix)).collect();
        let mut all = Vec::new();
        // The limit leaves room for one word after the prefix.
        let mut options = translator.options().with_beam(1);
        options.search.max_length_factor = None;
        options.search.max_length_extra = 0;
        for (request, (_, prefix)) in requests.iter().zip(&prefixes) {
            let words = prefix.split(' ').filter(|word| !word.is_empty()).count();
            options.search.max_length = Some(words + 1);
            let translation = translator.translate_batch(std::slice::from_ref(request), &options);
            let translation = translation.unwrap();
            all.push(translation[0].alternatives[0].tokens.get(words).cloned());
        }
        all
    };
    let (a, b) = (best(a), best(b));
    (a.iter().zip(&b).filter(|(a, b)| a == b).count(), a.len())
}

/// Technique 7 keeps every best output; 6 changes the search, so only its share is told.
#[test]
fn early_stopping_keeps_the_best_and_candidates_most() {
    let Some(folder) = folder() else { return };
    let table = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(table.path(), unpacked(&folder.join("lex.en-de.txt.gz"))).unwrap();
    for names in MODELS {
        let translator = open(&folder, names, &Compute::float32());
        let mut options = options(&translator, 6);
        let expected = translate(&translator, &folder, &options);
        options.search.early_stop = Some(3.0);
        let early = translate(&translator, &folder, &options);
        assert_eq!(same_best(&early, &expected), expected.len(), "{names:?}");
        options.search.early_stop = None;
        let file = ShortlistFile { best: 20, ..ShortlistFile::new(table.path()) };
        let limited = open_with(&folder, names, &Compute::float32(), ShortlistChoice::File(file));
        let same = same_best(&translate(&limited, &folder, &options), &expected);
        println!("{names:?}: {same} of {} with candidate lists", expected.len());
        assert!(same * 2 > expected.len());
    }
}

#[test]
fn unknown_words_become_what_they_attend_to() {
    let Some(folder) = folder() else { return };
    let translator = open(&folder, &["s4"], &Compute::float32());
    let lines = lines(&folder, "en");
    let options = options(&translator, 6);
    let plain = translate(&translator, &folder, &options);
    let with = |dictionary: Dictionary| {
        let mut options = options.clone();
        options.replace_unknown = Some(Arc::new(dictionary));
        translate(&translator, &folder, &options)
    };
    let copied = with(Dictionary::default());
    let mut words = Dictionary::default();
    let mut replaced = 0;
    for ((line, plain), copied) in lines.iter().zip(&plain).zip(&copied) {
        let (before, after) = (&plain.alternatives[0], &copied.alternatives[0]);
        assert!(!after.text.contains("<unk>"), "{}", after.text);
        for (old, new) in before.tokens.iter().zip(&after.tokens) {
            if old != "<unk>" {
                assert_eq!(old, new);
                continue;
            }
            replaced += 1;
            assert!(line.split(' ').any(|word| word == new), "{line}: {new}");
            words.add(new, "ersetzt", 0.5);
        }
    }
    for (plain, translated) in plain.iter().zip(with(words)) {
        let pairs = plain.alternatives[0].tokens.iter().zip(&translated.alternatives[0].tokens);
        assert!(pairs.into_iter().all(|(old, new)| (old == "<unk>") == (new == "ersetzt")));
    }
    assert!(replaced > 0, "no unknown word in the test");
}
