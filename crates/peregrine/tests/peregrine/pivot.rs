//! Two models in a row: a batch and a stream give the same, and what one leg makes is what the other gets.

use std::sync::atomic::AtomicBool;

use crate::common::{AAN, nonsense};
use peregrine::model::Autoregression;
use peregrine::{
    Error, Legs, Line, Options, Pivot, Request, Split, StreamOptions, Translation, Translator,
};

const TEXTS: [&str; 7] = ["w3 w5 w8", "", "w1 w2. W3 w4!", "w9", "  w1   w2 ", "w7 w7 w7 w7", "…"];

fn models() -> (Translator, Translator) {
    (nonsense(Autoregression::SelfAttention), nonsense(AAN))
}

fn options(pivot: &Pivot, second: &Translator) -> Legs<Options> {
    let options = second.options().with_split(Split::Sentence).with_alignments(true);
    pivot.options(&options.with_beam(2).with_n_best(2).with_scores(true))
}

fn view(translation: &Translation) -> (Vec<String>, Vec<peregrine::Sentence>, Option<String>) {
    let texts = translation.alternatives.iter().map(|a| a.text.clone()).collect();
    let pivot = translation.pivot.as_ref().map(|first| first.text().to_owned());
    (texts, translation.sentences.clone(), pivot)
}

#[test]
fn each_leg_is_an_ordinary_translation() -> Result<(), Error> {
    let (first, second) = models();
    let pivot = Pivot::new(&first, &second);
    let options = options(&pivot, &second);
    for text in TEXTS {
        let whole = pivot.translate_batch(&[Request::new(text)], &options)?.remove(0);
        let one = first.translate_batch(&[Request::new(text)], &options.first)?.remove(0);
        let sentences = one.target_sentences();
        let between = Request::new(one.text()).with_sentences(&sentences);
        let two = second.translate_batch(&[between], &options.second)?.remove(0);
        assert_eq!(view(&whole).2.as_deref(), Some(one.text()));
        assert_eq!(view(&whole).0, view(&two).0);
        assert_eq!(whole.source_bytes, text.len());
        for sentence in &whole.sentences {
            assert!(text.get(sentence.source.clone()).is_some());
            for row in sentence.targets.iter().flat_map(|target| &target.alignment) {
                assert_eq!(row.len(), sentence.source_length);
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-3, "{row:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_stream_gives_what_a_batch_gives() -> Result<(), Error> {
    let (first, second) = models();
    let pivot = Pivot::new(&first, &second);
    let options = options(&pivot, &second);
    let requests = TEXTS.map(Request::new);
    let expected: Vec<_> = pivot.translate_batch(&requests, &options)?.iter().map(view).collect();
    let stream = |translator: &Translator, options: Options| {
        StreamOptions::new(options, translator.workers().with_threads(2))
    };
    let legs =
        Legs { first: stream(&first, options.first), second: stream(&second, options.second) };
    let mut streamed = Vec::new();
    let lines = TEXTS.map(|text| Ok(Line::new(text))).into_iter();
    let summary = pivot.stream(lines, &legs, |answer| {
        assert_eq!(answer.number, streamed.len() as u64);
        streamed.push(view(&answer.translation));
        Ok::<(), Error>(())
    })?;
    assert_eq!((streamed, summary.lines), (expected, TEXTS.len() as u64));
    Ok(())
}

/// An error of the input comes after the lines before it; an error of the writer ends the stream, also while lines still come.
#[test]
fn errors_end_the_stream() {
    let (first, second) = models();
    let pivot = Pivot::new(&first, &second);
    let stream =
        |translator: &Translator| StreamOptions::new(translator.options(), translator.workers());
    let legs = Legs { first: stream(&first), second: stream(&second) };
    let lines = [Ok(Line::new("w1 w2")), Err(Error::Cancelled), Ok(Line::new("w3"))].into_iter();
    let mut written = 0;
    let done = pivot.stream(lines, &legs, |_| {
        written += 1;
        Ok::<(), Error>(())
    });
    assert!(matches!(done, Err(Error::Cancelled)));
    assert_eq!(written, 1);
    let endless = std::iter::repeat_with(|| Ok(Line::new("w1 w2 w3")));
    let done = pivot.stream(endless, &legs, |_| Err(Error::Full));
    assert!(matches!(done, Err(Error::Full)));
}

#[test]
fn a_stop_flag_ends_both_legs() -> Result<(), Error> {
    let (first, second) = models();
    let pivot = Pivot::new(&first, &second);
    let flag = AtomicBool::new(false);
    let stream = |translator: &Translator| {
        let mut options = StreamOptions::new(translator.options(), translator.workers());
        options.stop = Some(&flag);
        options
    };
    let legs = Legs { first: stream(&first), second: stream(&second) };
    let endless = std::iter::repeat_with(|| Ok(Line::new("w1 w2 w3")));
    let summary = pivot.stream(endless, &legs, |answer| {
        flag.store(answer.number > 10, std::sync::atomic::Ordering::Relaxed);
        Ok::<(), Error>(())
    })?;
    assert!(summary.stopped && summary.lines > 10);
    Ok(())
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "wrong ranges are meant"
)]
fn sentences_that_are_not_in_the_text_are_refused() {
    let (first, _) = models();
    for (sentences, number) in
        [(vec![0..2, 1..4], 1), (vec![0..9], 0), (vec![3..2], 0), (vec![0..1, 3..5], 1)]
    {
        let request = Request::new("w é w").with_sentences(&sentences);
        let refused = first.translate_batch(&[request], &first.options());
        assert!(
            matches!(refused, Err(Error::Sentences { number: n }) if n == number),
            "{sentences:?}"
        );
    }
}
