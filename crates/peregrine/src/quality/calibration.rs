//! Calibration: the distribution of a model's log-probabilities, by which a log-probability becomes
//! a rank.

use std::path::{Path, PathBuf};

use peregrine_model::ModelError;
use peregrine_text::check::LengthRange;
use serde_json::{Value, json};

/// The format name in the file of a table.
const FORMAT: &str = "peregrine-quality";
const VERSION: u64 = 1;

/// The number of equally spaced quantiles, from minimum to maximum.
const POINTS: usize = 33;

/// A distribution of log-probabilities, by its quantiles.
#[derive(Debug, Clone, PartialEq)]
struct Quantiles(Vec<f32>);

impl Quantiles {
    /// The quantiles of some values in any order; `None` without values.
    fn of(mut values: Vec<f32>) -> Option<Quantiles> {
        values.sort_by(f32::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |point: usize| quantile(&values, point as f32 / (POINTS - 1) as f32 * last as f32);
        Some(Quantiles((0..POINTS).map(at).collect()))
    }

    /// The share of values that are lower, from 0 to 1, with linear interpolation between
    /// quantiles. Half of the equal values count as lower.
    fn rank(&self, value: f32) -> f32 {
        let Quantiles(points) = self;
        let lower = points.partition_point(|point| *point < value);
        let not_greater = points.partition_point(|point| *point <= value);
        let place = match (lower, not_greater) {
            (0, 0) => 0.0,
            (place, _) if place == points.len() => (points.len() - 1) as f32,
            (place, end) if place < end => (place + end - 1) as f32 / 2.0,
            (place, _) => {
                let (below, above) = (points[place - 1], points[place]);
                (place - 1) as f32 + (value - below) / (above - below)
            }
        };
        place / (points.len() - 1) as f32
    }
}

/// The value at a fractional index of sorted values, with linear interpolation.
fn quantile(values: &[f32], place: f32) -> f32 {
    let below = (place as usize).min(values.len() - 1);
    let above = (below + 1).min(values.len() - 1);
    values[below] + (values[above] - values[below]) * (place - below as f32)
}

/// The calibration of a model: the distribution of its log-probabilities in ordinary text, and the
/// usual ratio of lengths.
///
/// Log-probabilities of two models cannot be compared, and those of one model lie close together. A
/// score is therefore a *percentile*: the share of ordinary sentences of which the model was less
/// sure. [`Translator::calibrate`] makes a table, `peregrine calibrate` stores it beside the model,
/// and opening the model reads it.
///
/// [`Translator::calibrate`]: crate::Translator::calibrate
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let table = translator.calibration();
/// assert!(table.sentence_rank(-0.05) > 0.9 && table.sentence_rank(-0.3) < 0.1);
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    sentences: Quantiles,
    words: Quantiles,
    /// The usual ratio of a translation's length to its source's.
    pub lengths: LengthRange,
    /// The number of sentences of the calibration text.
    pub sentence_count: usize,
    /// The precision of the calibration. Other precisions hardly change it.
    pub precision: String,
    /// Whether a shortlist was used. Without one, log-probabilities are lower.
    pub shortlist: bool,
    /// The beam size of the calibration.
    pub beam: usize,
    /// Whether the table was made for this model.
    pub own: bool,
}

/// The measurements from which a table is made.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The mean log-probability of each sentence's tokens.
    pub(super) sentences: Vec<f32>,
    /// The mean log-probability of each word's tokens.
    pub(super) words: Vec<f32>,
    /// The ratio of target to source length of each sentence.
    pub(super) lengths: Vec<f32>,
}

impl Calibration {
    /// The fewest sentences of a calibration text.
    pub const LEAST_SENTENCES: usize = 500;

    /// The quantiles of the length ratio that bound the usual range.
    const USUAL_LENGTHS: (f32, f32) = (0.005, 0.995);

    /// A table from measurements; `None` without any.
    pub(super) fn of(mut samples: Samples) -> Option<Calibration> {
        let sentence_count = samples.sentences.len();
        let lengths = &mut samples.lengths;
        lengths.sort_by(f32::total_cmp);
        let at = |rank: f32| quantile(lengths, rank * (lengths.len() - 1) as f32);
        let lengths = match lengths.len() {
            0 => LengthRange::default(),
            _ => LengthRange {
                least: at(Calibration::USUAL_LENGTHS.0),
                greatest: at(Calibration::USUAL_LENGTHS.1),
            },
        };
        Some(Calibration {
            sentences: Quantiles::of(samples.sentences)?,
            words: Quantiles::of(samples.words)?,
            lengths,
            sentence_count,
            precision: String::new(),
            shortlist: false,
            beam: 1,
            own: true,
        })
    }

    /// The share of ordinary sentences of which the model is less sure, from 0 to 1, by the mean log-probability of a sentence's
    /// tokens, the end symbol included.
    pub fn sentence_rank(&self, mean: f32) -> f32 {
        self.sentences.rank(mean)
    }

    /// The share of words in ordinary text of which the model is less sure, from 0 to 1, by the mean log-probability of a word's
    /// tokens.
    pub fn word_rank(&self, mean: f32) -> f32 {
        self.words.rank(mean)
    }

    /// The path of a model's table: the model's path with `.quality.json` appended.
    pub fn beside(network: &Path) -> PathBuf {
        let mut name = network.file_name().unwrap_or_default().to_owned();
        name.push(".quality.json");
        network.with_file_name(name)
    }

    /// Reads a table.
    pub fn read(path: &Path) -> Result<Calibration, ModelError> {
        let bytes = std::fs::read(path).map_err(ModelError::io(path))?;
        let invalid = |problem: String| ModelError::Invalid { path: path.into(), problem };
        Calibration::from_json(&bytes).map_err(invalid)
    }

    /// Reads a table from JSON. An error says what was expected.
    pub fn from_json(bytes: &[u8]) -> Result<Calibration, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if value["format"] != FORMAT || value["version"] != VERSION {
            return Err(format!("not a table of `peregrine calibrate`, version {VERSION}"));
        }
        let points = |name: &str| {
            let list = value[name].as_array().map(Vec::as_slice).unwrap_or_default();
            let numbers: Vec<f32> =
                list.iter().filter_map(Value::as_f64).map(|n| n as f32).collect();
            let fits = numbers.len() == POINTS
                && list.len() == POINTS
                && numbers.iter().all(|n| n.is_finite())
                && numbers.is_sorted();
            let problem = || format!("{name:?}: expected {POINTS} numbers in rising order");
            fits.then_some(Quantiles(numbers)).ok_or_else(problem)
        };
        let lengths = match value["lengths"].as_array().map(Vec::as_slice) {
            None => LengthRange::default(),
            Some([least, greatest]) => {
                let number = |value: &Value| {
                    let number = value.as_f64().filter(|n| *n >= 0.0).map(|n| n as f32);
                    number.ok_or("\"lengths\": expected two ratios")
                };
                LengthRange { least: number(least)?, greatest: number(greatest)? }
            }
            Some(_) => return Err("\"lengths\": expected two ratios".to_owned()),
        };
        let count = |name: &str| value[name].as_u64().and_then(|n| usize::try_from(n).ok());
        Ok(Calibration {
            sentences: points("sentence_quantiles")?,
            words: points("word_quantiles")?,
            lengths,
            sentence_count: count("sentences").unwrap_or_default(),
            precision: value["precision"].as_str().unwrap_or_default().to_owned(),
            shortlist: value["shortlist"].as_bool().unwrap_or_default(),
            beam: count("beam").unwrap_or(1),
            own: true,
        })
    }

    /// The table as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "format": FORMAT,
            "version": VERSION,
            "sentences": self.sentence_count,
            "precision": self.precision,
            "shortlist": self.shortlist,
            "beam": self.beam,
            "lengths": [rounded(self.lengths.least), rounded(self.lengths.greatest)],
            "sentence_quantiles": self.sentences.0.iter().copied().map(rounded).collect::<Vec<_>>(),
            "word_quantiles": self.words.0.iter().copied().map(rounded).collect::<Vec<_>>(),
        })
    }
}

/// Rounds to five decimal places; more would be noise.
fn rounded(number: f32) -> f64 {
    (f64::from(number) * 1e5).round() / 1e5
}

impl Default for Calibration {
    /// The table for models without one of their own, from three models together. Its ranks only
    /// tell which of two translations a model is surer of.
    fn default() -> Calibration {
        Calibration {
            sentences: Quantiles(USUAL_SENTENCES.to_vec()),
            words: Quantiles(USUAL_WORDS.to_vec()),
            lengths: LengthRange::default(),
            sentence_count: 0,
            precision: String::new(),
            shortlist: false,
            beam: 1,
            own: false,
        }
    }
}

/// Quantiles of a Firefox model, the built-in one and an OPUS-MT model (`bench/confidence.py
/// --pool`).
const USUAL_SENTENCES: [f32; POINTS] = [
    -1.17394, -0.73280, -0.66662, -0.61791, -0.57727, -0.54725, -0.51423, -0.48594, -0.45596,
    -0.41900, -0.34910, -0.27265, -0.19917, -0.17648, -0.16046, -0.14116, -0.13416, -0.12436,
    -0.11396, -0.10744, -0.10069, -0.09274, -0.08788, -0.08227, -0.07473, -0.06883, -0.06394,
    -0.05775, -0.05157, -0.04536, -0.03501, -0.02660, -0.00421,
];
const USUAL_WORDS: [f32; POINTS] = [
    -3.35511, -1.70996, -1.17815, -0.92540, -0.74209, -0.63084, -0.56907, -0.45896, -0.41676,
    -0.31505, -0.27057, -0.22116, -0.17940, -0.15869, -0.12489, -0.11053, -0.08405, -0.06860,
    -0.05502, -0.04381, -0.03894, -0.03259, -0.02862, -0.02239, -0.01509, -0.01095, -0.00437,
    -0.00249, -0.00132, -0.00059, -0.00023, -0.00006, 0.00000,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Calibration {
        let sentences = (0..1000).rev().map(|n| -(n as f32) / 1000.0).collect();
        let words = (0..2000).map(|n| -(n as f32).sqrt()).collect();
        let lengths = (0..=200).map(|n| 0.5 + n as f32 / 200.0).collect();
        let table = Calibration::of(Samples { sentences, words, lengths }).expect("a table");
        Calibration { precision: "int8".to_owned(), shortlist: true, beam: 4, ..table }
    }

    /// Ranks equal those found by counting.
    #[test]
    fn ranks_are_shares_of_what_is_lower() {
        let table = table();
        for value in [-2.0, -0.999, -0.75, -0.5, -0.123, -0.01, 0.0, 1.0] {
            let lower = (0..1000).filter(|n| -(*n as f32) / 1000.0 < value).count();
            let rank = table.sentence_rank(value);
            assert!((rank - lower as f32 / 1000.0).abs() < 0.002, "{value}: {rank}");
        }
        for value in [-50.0, -40.0, -30.0, -10.0, -1.0] {
            let lower = (0..2000).filter(|n| -(*n as f32).sqrt() < value).count();
            let rank = table.word_rank(value);
            assert!((rank - lower as f32 / 2000.0).abs() < 0.02, "{value}: {rank}");
        }
        assert!((table.lengths.least - 0.505).abs() < 1e-5);
        assert!((table.lengths.greatest - 1.495).abs() < 1e-5);
    }

    /// Half of what is equal counts as lower.
    #[test]
    fn equal_values_have_the_middle_rank() {
        let values = std::iter::repeat_n(-1.0, 500).chain(std::iter::repeat_n(0.0, 500));
        let quantiles = Quantiles::of(values.collect()).expect("quantiles");
        assert!((quantiles.rank(0.0) - 0.75).abs() < 0.02);
        assert!((quantiles.rank(-1.0) - 0.25).abs() < 0.02);
        assert!((quantiles.rank(-0.5) - 0.5).abs() < 0.02);
        assert!(Quantiles::of(Vec::new()).is_none());
        assert_eq!(Quantiles::of(vec![-1.0]).expect("one value").rank(-1.0), 0.5);
    }

    #[test]
    fn a_table_is_the_same_after_writing() {
        let table = table();
        let read = Calibration::from_json(table.to_json().to_string().as_bytes()).expect("JSON");
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close(&read.sentences.0, &table.sentences.0));
        assert!(close(&read.words.0, &table.words.0));
        assert_eq!((read.precision.as_str(), read.shortlist, read.beam), ("int8", true, 4));
        assert_eq!((read.sentence_count, read.own), (1000, true));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let good = table().to_json();
        let mut cases = vec![("{".to_owned(), "EOF"), ("{}".to_owned(), "not a table")];
        let mut with = |name: &str, value: Value, expected| {
            let mut bad = good.clone();
            bad[name] = value;
            cases.push((bad.to_string(), expected));
        };
        with("version", json!(2), "not a table");
        with("sentence_quantiles", json!([1, 2]), "expected 33 numbers");
        with("word_quantiles", json!(vec!["x"; 33]), "expected 33 numbers");
        with("word_quantiles", json!((0..33).map(|n| -n).collect::<Vec<_>>()), "rising");
        with("lengths", json!([1]), "two ratios");
        with("lengths", json!([1, "x"]), "two ratios");
        for (text, expected) in cases {
            let error = Calibration::from_json(text.as_bytes()).expect_err(&text);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_usual_table_is_nobodys() {
        let usual = Calibration::default();
        assert!(!usual.own && usual.sentences.0.len() == POINTS && usual.words.0.len() == POINTS);
    }

    #[test]
    fn tables_are_beside_networks() {
        let path = Calibration::beside(Path::new("models/enpt/model.bin"));
        assert_eq!(path, Path::new("models/enpt/model.bin.quality.json"));
    }
}
