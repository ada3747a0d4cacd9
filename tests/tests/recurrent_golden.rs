//! Marian's recurrent models, and one under Nematus' names, against what Marian recorded for them.

use std::io::Read;
use std::path::{Path, PathBuf};

use peregrine::marian_format::{AlignmentStyle, Fields, best_line};
use peregrine::{OpenOptions, Options, Request, Translation, Translator};
use peregrine_formats::marian_bin::{self, Item, Kind};
use peregrine_formats::{Source, npz};

fn golden() -> Option<PathBuf> {
    peregrine_tests::shared("models/golden")
}

fn lines(path: &Path) -> Vec<String> {
    let mut text = String::new();
    let zipped = PathBuf::from(format!("{}.gz", path.display()));
    if zipped.exists() {
        let file = std::fs::File::open(zipped).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        text = std::fs::read_to_string(path).unwrap();
    }
    text.lines().map(str::to_owned).collect()
}

/// A recorded hypothesis: tokens, the tokens' scores, the final score.
struct Recorded {
    line: usize,
    tokens: String,
    scores: Vec<f32>,
    score: f32,
}

fn n_best(path: &Path) -> Vec<Recorded> {
    let parse = |line: String| {
        let fields: Vec<&str> = line.split(" ||| ").collect();
        let scores = fields[2].split(' ').skip(1).filter_map(|s| s.parse().ok()).collect();
        Recorded {
            line: fields[0].parse().unwrap(),
            tokens: fields[1].to_owned(),
            scores,
            score: fields[fields.len() - 1].parse().unwrap(),
        }
    };
    lines(path).into_iter().map(parse).collect()
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
        let expected = n_best(&golden.join(recorded).join("out/greedy.nbest"));
        let mut same = 0;
        for recorded in &expected {
            let best = &translations[recorded.line].alternatives[0];
            if best.tokens.join(" ") != recorded.tokens {
                continue;
            }
            same += 1;
            if !recorded.tokens.is_empty() {
                for (got, want) in best.token_scores.iter().zip(&recorded.scores) {
                    assert!(
                        (got - want).abs() < 1e-3,
                        "{name} {}: {got} for {want}",
                        recorded.line
                    );
                }
            }
        }
        assert!(same * 1000 >= expected.len() * 995, "{name}: {same} of {}", expected.len());
    }
}

#[test]
fn n_best_lists_are_marians() {
    let Some(golden) = golden() else { return };
    for (name, recorded) in MODELS {
        let (translator, lines) = open(&golden, name);
        for (file, normalize) in [("beam4-norm0.nbest", 0.0), ("beam4-norm1.nbest", 1.0)] {
            let translations = translate(&translator, &lines, &options(&translator, 4, normalize));
            let expected = n_best(&golden.join(recorded).join("out").join(file));
            let (mut same, mut rank, mut line) = (0, 0, usize::MAX);
            let mut count = 0;
            for recorded in expected.iter().filter(|r| !r.tokens.is_empty()) {
                rank = if recorded.line == line { rank + 1 } else { 0 };
                line = recorded.line;
                count += 1;
                let Some(got) = translations[line].alternatives.get(rank) else { continue };
                if got.tokens.join(" ") == recorded.tokens {
                    same += 1;
                    let allowed = 1e-3 * recorded.score.abs().max(1.0);
                    assert!((got.score - recorded.score).abs() < allowed, "{name} {line}");
                }
            }
            assert!(same * 100 >= count * 99, "{name} {file}: {same} of {count}");
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
        let fields =
            Fields { alignment: Some(AlignmentStyle::Hard), tokens: true, ..Fields::default() };
        let expected = self::lines(&golden.join(recorded).join("out/beam4-norm1-hard.txt"));
        let same = translations
            .iter()
            .zip(&expected)
            .filter(|(t, want)| best_line(t, &fields) == **want || t.text().is_empty())
            .count();
        assert!(same * 100 >= expected.len() * 99, "{name}: {same} of {}", expected.len());
        let soft = self::lines(&golden.join(recorded).join("out/beam4-norm1-soft.txt"));
        for (translation, want) in translations.iter().zip(&soft) {
            let (tokens, rows) = want.split_once(" ||| ").unwrap();
            let best = &translation.alternatives[0];
            assert_eq!(best.tokens.join(" "), tokens, "{name}");
            for (row, want) in best.alignment.iter().zip(rows.split(' ')) {
                for (got, want) in row.iter().zip(want.split(',')) {
                    assert!((got - want.parse::<f32>().unwrap()).abs() < 1e-4, "{name}");
                }
            }
        }
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
        for (i, (scored, want)) in scored.iter().zip(&expected).enumerate() {
            let want: f32 = want.parse().unwrap();
            assert!(
                (scored.score - want).abs() < 1e-3 * want.abs(),
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
