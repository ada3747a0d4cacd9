//! Marian's recurrent models, and one under Nematus' names, against what Marian recorded for them.

use std::path::{Path, PathBuf};

use peregrine::{OpenOptions, Options, Request, Translation, Translator};
use peregrine_formats::marian_bin::{self, Item, Kind};
use peregrine_formats::{Source, npz};
use peregrine_tests::marian::{hard, n_best, soft};
use peregrine_tests::{
    SCORE_TOLERANCE, Tally, Verdict, compare_greedy, compare_lists, lines, same_choices, shared,
};

/// Sentences that must be the same: greedy, and lists. The others must be near-ties.
const GREEDY: f64 = 0.995;
const LISTS: f64 = 0.99;

fn golden() -> Option<PathBuf> {
    shared("models/golden")
}

/// The model under test and the name of the recorded one.
const MODELS: [(&str, &str); 5] = [
    ("gru", "gru"),
    ("gru/theano", "gru"),
    ("lstm", "lstm"),
    ("mlstm", "mlstm"),
    ("bideep", "bideep"),
];

fn open(golden: &Path, name: &str) -> (Translator, Vec<String>) {
    let translator = Translator::open(&[golden.join(name)], &OpenOptions::default()).unwrap();
    let text = if name.starts_with("gru") { "inputs/test.bpe.en" } else { "inputs/test.en" };
    (translator, lines(&golden.join(text)))
}

fn translate(translator: &Translator, lines: &[String], options: &Options) -> Vec<Translation> {
    let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
    translator.translate_batch(&requests, options).unwrap()
}

fn options(translator: &Translator, beam: usize, normalize: f32) -> Options {
    let mut options = translator.options().with_beam(beam);
    options.search.normalize = normalize;
    options.search.max_length_factor = Some(3.0);
    options.n_best = beam;
    options.scores = true;
    options
}

#[test]
fn greedy_translations_and_their_scores_are_marians() {
    let Some(golden) = golden() else { return };
    for (name, recorded) in MODELS {
        let (translator, lines) = open(&golden, name);
        let translations = translate(&translator, &lines, &options(&translator, 1, 0.0));
        let reference = n_best(&golden.join(recorded).join("out/greedy.nbest"));
        assert_eq!(translations.len(), reference.len());
        let mut tally = Tally::new(format!("{name} greedy"));
        for (line, (ours, theirs)) in translations.iter().zip(&reference).enumerate() {
            let verdict = compare_greedy(&mut tally, ours, &theirs[0]);
            tally.add(line, verdict);
        }
        tally.finish(GREEDY);
    }
}

#[test]
fn n_best_lists_are_marians() {
    let Some(golden) = golden() else { return };
    for (name, recorded) in MODELS {
        let (translator, lines) = open(&golden, name);
        for (file, normalize) in [("beam4-norm0.nbest", 0.0), ("beam4-norm1.nbest", 1.0)] {
            let translations = translate(&translator, &lines, &options(&translator, 4, normalize));
            let reference = n_best(&golden.join(recorded).join("out").join(file));
            assert_eq!(translations.len(), reference.len());
            let mut tally = Tally::new(format!("{name} {file}"));
            for (line, (ours, theirs)) in translations.iter().zip(&reference).enumerate() {
                let verdict = compare_lists(&mut tally, ours, theirs);
                tally.add(line, verdict);
            }
            tally.finish(LISTS);
        }
    }
}

#[test]
fn alignments_are_marians() {
    let Some(golden) = golden() else { return };
    for (name, recorded) in MODELS {
        let (translator, lines) = open(&golden, name);
        let mut options = options(&translator, 4, 1.0);
        options.alignments = true;
        let translations = translate(&translator, &lines, &options);
        let out = golden.join(recorded).join("out");
        let choices = self::lines(&out.join("beam4-norm1-hard.txt"));
        let weights = self::lines(&out.join("beam4-norm1-soft.txt"));
        assert_eq!(translations.len(), choices.len());
        assert!(!weights.is_empty());
        let mut tally = Tally::new(format!("{name} hard alignments"));
        for (line, translation) in translations.iter().enumerate() {
            let best = &translation.alternatives[0];
            let (words, choices) = choices[line].rsplit_once(" ||| ").unwrap();
            assert_eq!(best.tokens.join(" "), words, "{name} {line}");
            // Marian aligns the end symbol of an empty translation; here it has no alignment.
            if words.is_empty() {
                tally.add(line, Verdict::EmptyOnce);
                continue;
            }
            let alignment = translation.alignment(0);
            // Marian's weights are recorded of the first lines only.
            if let Some(theirs) = weights.get(line) {
                let rows = soft(theirs.rsplit_once(" ||| ").unwrap().1);
                assert_eq!(alignment.len(), rows.len(), "{name} {line}");
                for (ours, theirs) in alignment.iter().zip(&rows) {
                    assert_eq!(ours.len(), theirs.len(), "{name} {line}");
                    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
                    assert!(ours.iter().zip(theirs).all(close), "{name} {line}: {ours:?}");
                }
            }
            tally.add(line, same_choices(&alignment, &hard(choices)));
        }
        tally.finish(LISTS);
    }
}

#[test]
fn given_translations_have_marians_scores() {
    let Some(golden) = golden() else { return };
    for (name, recorded) in MODELS {
        let (translator, sources) = open(&golden, name);
        let references =
            if recorded == "gru" { "inputs/ref300.bpe.de" } else { "inputs/ref300.de" };
        let references = lines(&golden.join(references));
        let pairs: Vec<(&str, &str)> =
            sources.iter().zip(&references).map(|(s, t)| (&**s, &**t)).collect();
        let scored = translator.score(&pairs, &translator.options()).unwrap();
        let expected = lines(&golden.join(recorded).join("out/score.txt"));
        assert_eq!(scored.len(), expected.len());
        for (i, (scored, want)) in scored.iter().zip(&expected).enumerate() {
            let want: f32 = want.parse().unwrap();
            assert!(
                (scored.score - want).abs() < SCORE_TOLERANCE * want.abs(),
                "{name} {i}: {} {want}",
                scored.score
            );
        }
    }
}

#[test]
fn nematus_names_change_nothing() {
    let Some(golden) = golden() else { return };
    let (marian, lines) = open(&golden, "gru");
    let (nematus, _) = open(&golden, "gru/theano");
    assert_same_lists(&marian, &nematus, &lines);
}

#[test]
fn a_binary_file_is_the_same_model() {
    let Some(golden) = golden() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["gru", "lstm", "mlstm", "bideep"] {
        let (npz, lines) = open(&golden, name);
        let binary = folder.path().join("model.bin");
        write_binary(&golden.join(name).join("model.npz"), &binary);
        // The vocabularies and the search of the configuration, with the other model.
        let config = Some(golden.join(name).join("decoder.yml"));
        let options = OpenOptions { config, ..OpenOptions::default() };
        let binary = Translator::open(&[binary], &options).unwrap();
        assert_same_lists(&npz, &binary, &lines[..100]);
    }
}

/// Writes the tensors of an `.npz` file as Marian's converter does: the description comes last.
fn write_binary(from: &Path, to: &Path) {
    let tensors = npz::read(&Source::open(from).unwrap()).unwrap();
    let mut items: Vec<Item> = tensors
        .into_iter()
        .map(|(name, tensor)| Item {
            name,
            kind: Kind::Plain(tensor.dtype),
            dialect: None,
            shape: tensor.shape,
            data: tensor.data,
        })
        .collect();
    items.sort_by_key(|item| item.name == "special:model.yml");
    marian_bin::write(to, &items).unwrap();
}

/// The n-best lists of both, to the last bit.
fn assert_same_lists(a: &Translator, b: &Translator, lines: &[String]) {
    let options = options(a, 4, 1.0);
    let (a, b) = (translate(a, lines, &options), translate(b, lines, &options));
    for (a, b) in a.iter().zip(&b) {
        let tokens = |t: &Translation| -> Vec<(Vec<String>, f32)> {
            t.alternatives.iter().map(|a| (a.tokens.clone(), a.score)).collect()
        };
        assert_eq!(tokens(a), tokens(b));
    }
}

#[test]
fn company_changes_nothing() {
    let Some(golden) = golden() else { return };
    for name in ["bideep", "mlstm"] {
        let (translator, lines) = open(&golden, name);
        let lines = &lines[..40];
        let options = options(&translator, 4, 1.0);
        let together = translate(&translator, lines, &options);
        let alone: Vec<Translation> = lines
            .iter()
            .flat_map(|line| translate(&translator, std::slice::from_ref(line), &options))
            .collect();
        for (a, b) in together.iter().zip(&alone) {
            assert_eq!(a.text(), b.text());
            assert_eq!(a.alternatives[0].score, b.alternatives[0].score, "{name}");
        }
    }
}
