//! Marian's text formats: n-best lists, word scores, alignments.
//!
//! ```
//! use peregrine::marian_format::significant;
//! assert_eq!(significant(-0.4965321), "-0.496532");
//! assert_eq!(significant(-12.0), "-12");
//! assert_eq!(significant(1.5e-7), "1.5e-07");
//! ```

use crate::{Alternative, Quality, Translation};

/// Which alignment is printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlignmentStyle {
    /// `source-target` for the strongest source token of each target token.
    Hard,
    /// All weights.
    Soft,
    /// `source-target` for all weights above a threshold.
    Above(f32),
}

/// The fields that are printed of a translation beside its text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fields {
    /// The alignment, if one is printed.
    pub alignment: Option<AlignmentStyle>,
    /// Whether the log-probability of each token is printed.
    pub word_scores: bool,
    /// Whether tokens are printed instead of text.
    pub tokens: bool,
    /// Whether its quality is printed.
    pub quality: bool,
}

/// The line for the best translation.
pub fn best_line(translation: &Translation, fields: &Fields) -> String {
    match translation.alternatives.is_empty() {
        true => String::new(),
        false => shown(translation, 0, fields),
    }
}

/// The lines of an n-best list: `number ||| text … ||| F0= x ||| score`.
pub fn n_best_lines(number: usize, translation: &Translation, fields: &Fields) -> Vec<String> {
    let line = |(rank, alternative): (usize, &Alternative)| {
        let members = alternative.member_scores.iter().enumerate();
        let features: Vec<String> =
            members.map(|(i, &score)| format!("F{i}= {}", significant(score))).collect();
        let (shown, score) = (shown(translation, rank, fields), significant(alternative.score));
        format!("{number} ||| {shown} ||| {} ||| {score}", features.join(" "))
    };
    translation.alternatives.iter().enumerate().map(line).collect()
}

fn shown(translation: &Translation, rank: usize, fields: &Fields) -> String {
    let alternative = &translation.alternatives[rank];
    let text =
        if fields.tokens { alternative.tokens.join(" ") } else { one_line(&alternative.text) };
    let alignment = fields.alignment.map(|style| alignment(&translation.alignment(rank), style));
    let scores = fields.word_scores.then(|| word_scores(&alternative.token_scores));
    let quality = alternative.quality.as_ref().filter(|_| fields.quality).map(quality);
    [Some(text), alignment, scores, quality].into_iter().flatten().collect::<Vec<_>>().join(" ||| ")
}

/// A translation is one line, whatever bytes a model may put together.
pub fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// `WordScores= s1 s2 …`, five decimals.
pub fn word_scores(scores: &[f32]) -> String {
    let scores: String = scores.iter().map(|score| format!(" {score:.5}")).collect();
    format!("WordScores={scores}")
}

/// `Quality= score flags`; the score is `-` if nothing was translated.
pub fn quality(quality: &Quality) -> String {
    let score = quality.score().map_or("-".to_owned(), |score| format!("{score:.2}"));
    format!("Quality= {score} {}", quality.flags).trim_end().to_owned()
}

/// An alignment, a row of weights for each target token.
pub fn alignment(rows: &[Vec<f32>], style: AlignmentStyle) -> String {
    match style {
        AlignmentStyle::Soft => {
            let row =
                |row: &Vec<f32>| row.iter().map(|&w| significant(w)).collect::<Vec<_>>().join(",");
            rows.iter().map(row).collect::<Vec<_>>().join(" ")
        }
        AlignmentStyle::Hard => pairs(rows, |row| {
            let first_largest = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b]));
            // A row of zeros belongs to text that was copied: nothing was attended to.
            first_largest.filter(|&source| row[source] > 0.0).into_iter().collect()
        }),
        AlignmentStyle::Above(threshold) => {
            pairs(rows, |row| (0..row.len()).filter(|&s| row[s] > threshold).collect())
        }
    }
}

/// `source-target` pairs, sorted by source, then target.
fn pairs(rows: &[Vec<f32>], sources: impl Fn(&[f32]) -> Vec<usize>) -> String {
    let of_row = |(target, row): (usize, &Vec<f32>)| {
        sources(row).into_iter().map(move |source| (source, target)).collect::<Vec<_>>()
    };
    let mut pairs: Vec<(usize, usize)> = rows.iter().enumerate().flat_map(of_row).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(s, t)| format!("{s}-{t}")).collect::<Vec<_>>().join(" ")
}

/// Six significant digits without trailing zeros: what a C++ stream prints.
pub fn significant(value: f32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // Rounding to six digits first: 9.999999 has the exponent of 10.
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return trim(&format!("{value:.*}", (5 - exponent) as usize)).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

fn trim(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_a_stream_prints_them() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (-7.96595, "-7.96595"),
            (123456.7, "123457"),
            (1234567.0, "1.23457e+06"),
            (0.0001234567, "0.000123457"),
            (0.00001234567, "1.23457e-05"),
            (9.999999, "10"),
            (999999.5, "1e+06"),
            (-100.0, "-100"),
        ];
        for (value, expected) in cases {
            assert_eq!(significant(value), expected);
        }
    }

    #[test]
    fn alignments_are_sorted_by_source() {
        let rows = vec![vec![0.1, 0.7, 0.2], vec![0.6, 0.2, 0.2], vec![0.25, 0.5, 0.25]];
        assert_eq!(alignment(&rows, AlignmentStyle::Hard), "0-1 1-0 1-2");
        assert_eq!(alignment(&rows, AlignmentStyle::Above(0.2)), "0-1 0-2 1-0 1-2 2-2");
        assert_eq!(alignment(&rows[..1], AlignmentStyle::Soft), "0.1,0.7,0.2");
        let tie = vec![vec![0.5, 0.5]];
        assert_eq!(alignment(&tie, AlignmentStyle::Hard), "0-0");
        let copied = vec![vec![0.0, 0.0], vec![0.4, 0.6]];
        assert_eq!(alignment(&copied, AlignmentStyle::Hard), "1-1");
    }

    #[test]
    fn a_translation_stays_on_its_line() {
        assert_eq!(one_line("a\nb\r\nc"), "a b  c");
    }
}
