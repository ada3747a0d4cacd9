//! Quality with models: scores are ranks, flags say what is wrong, and neither changes a translation.

use crate::common::{listed, nonsense};
use peregrine::model::Autoregression;
use peregrine::{
    Calibration, Carry, Compute, Error, Flag, Line, Options, Request, Service, ServiceOptions,
    Split, StreamOptions, Translation, Translator,
};

fn translate(translator: &Translator, texts: &[&str], options: &Options) -> Vec<Translation> {
    let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
    translator.translate_batch(&requests, options).expect("translations")
}

/// Lines of nonsense, no two of which are equal.
fn lines(count: usize) -> Vec<String> {
    let word = |n: usize| format!("w{}", 2 + n % 50);
    let line =
        |n: usize| (0..3 + n % 7).map(|i| word(n * 7 + i * (1 + n / 50))).collect::<Vec<_>>();
    (0..count).map(|n| line(n).join(" ")).collect()
}

/// Ranks in a table of some lines are those among these lines, by counting.
#[test]
fn scores_are_ranks_among_the_lines_of_the_table() {
    let translator = nonsense(Autoregression::SelfAttention);
    assert!(!translator.calibration().own);
    let lines = lines(2400);
    // Greedy nonsense never ends, and other nonsense at once.
    let mut options = translator.options().with_beam(6);
    options.search.min_length = 3;
    let workers = translator.workers();
    let table = match translator.calibrate(&lines, &options, &workers) {
        Ok(table) => table,
        Err(Error::TooFewSentences(count)) => panic!("only {count} of 2,400 ended"),
        Err(other) => panic!("{other}"),
    };
    assert_eq!((table.precision.as_str(), table.shortlist, table.beam), ("float32", false, 6));
    let translator = translator.with_calibration(table);
    let texts: Vec<&str> = lines.iter().map(String::as_str).collect();
    let options = options.with_quality(true).with_split(Split::Sentence);
    let translations = translate(&translator, &texts, &options);
    let ended = translations.iter().filter(|t| t.alternatives[0].ended);
    let qualities: Vec<_> = ended.filter_map(Translation::quality).collect();
    let mut means: Vec<f32> =
        qualities.iter().filter_map(|quality| quality.mean_log_probability()).collect();
    means.sort_by(f32::total_cmp);
    for quality in &qualities {
        assert!(quality.is_calibrated());
        let mean = quality.mean_log_probability().expect("a mean");
        let below = means.partition_point(|other| *other < mean);
        let upto = means.partition_point(|other| *other <= mean);
        let expected = (below + upto) as f32 / 2.0 / means.len() as f32;
        let score = quality.score().expect("a score");
        assert!((score - expected).abs() < 0.05, "{score} is not {expected}");
    }
}

#[test]
fn few_sentences_make_no_table() {
    let translator = nonsense(Autoregression::SelfAttention);
    let made = translator.calibrate(&lines(20), &translator.options(), &translator.workers());
    assert!(matches!(made, Err(Error::TooFewSentences(count)) if count <= 20));
    let nothing = translator.calibrate(&[], &translator.options(), &translator.workers());
    assert!(matches!(nothing, Err(Error::TooFewSentences(0))));
}

/// Without quality there is none, and with it there are the same words.
#[test]
fn quality_changes_no_translation() {
    let translator = listed(Autoregression::SelfAttention, &Compute::default());
    let texts = ["w3 w5 w8", "w9. w4 w11 w12", "", "w2 w2 w2"];
    for beam in [1, 3] {
        let plain = translator.options().with_beam(beam).with_n_best(beam);
        let judged = plain.clone().with_quality(true);
        let (off, on) =
            (translate(&translator, &texts, &plain), translate(&translator, &texts, &judged));
        for (off, on) in off.iter().zip(&on) {
            assert!(off.quality().is_none() && on.quality().is_some());
            assert_eq!(off.alternatives.len(), on.alternatives.len());
            for (a, b) in off.alternatives.iter().zip(&on.alternatives) {
                assert_eq!((&a.text, &a.tokens, a.ended), (&b.text, &b.tokens, b.ended));
            }
        }
    }
}

/// The quality of a line is that of its sentences, of each alternative its own.
#[test]
fn lines_have_the_quality_of_their_sentences() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = translator.options().with_beam(3).with_n_best(3).with_quality(true);
    let options = options.with_split(Split::Sentence).with_scores(true);
    let line = &translate(&translator, &["w3 w5 w8. W9 w4! W11 w12 w13"], &options)[0];
    assert!(line.sentences.len() > 1 && line.alternatives.len() > 1);
    for (rank, alternative) in line.alternatives.iter().enumerate() {
        let quality = alternative.quality.as_ref().expect("a quality");
        let mean = quality.mean_log_probability().expect("a mean");
        assert!((mean - alternative.path_score / alternative.scored as f32).abs() < 1e-5);
        let targets = || line.sentences.iter().map(|sentence| &sentence.targets[rank]);
        let own = targets().filter_map(|target| target.quality.as_ref());
        assert_eq!(own.clone().count(), line.sentences.len());
        assert!(
            Flag::ALL
                .into_iter()
                .all(|f| quality.flags.has(f) == own.clone().any(|q| q.flags.has(f)))
        );
        for (target, own) in targets().zip(own) {
            let scored = target.tokens.len() + usize::from(target.ended);
            let mean = own.mean_log_probability().expect("a mean");
            assert!((mean - target.path_score / scored as f32).abs() < 1e-5);
        }
        let words = line.words(rank);
        assert!(!words.is_empty());
        for word in words {
            let mean = word.score / word.tokens.len() as f32;
            assert_eq!(word.quality, Some(translator.calibration().word_rank(mean)));
        }
    }
}

/// A table that was made with a shortlist is no measure without one.
#[test]
fn another_shortlist_is_uncalibrated() {
    let mut table = Calibration::default();
    (table.own, table.shortlist) = (true, true);
    let translator =
        listed(Autoregression::SelfAttention, &Compute::default()).with_calibration(table);
    let options = translator.options().with_quality(true);
    let is_calibrated = |options: &Options| {
        let translation = translate(&translator, &["w3 w5"], options).remove(0);
        translation.quality().is_some_and(|quality| quality.is_calibrated())
    };
    assert!(is_calibrated(&options));
    assert!(!is_calibrated(&options.with_shortlist(false)));
}

#[cfg(feature = "builtin")]
mod builtin {
    use super::*;

    fn builtin() -> Translator {
        Translator::builtin().expect("the built-in model")
    }

    fn flags(translator: &Translator, text: &str, options: &Options) -> String {
        let translation = translate(translator, &[text], options).remove(0);
        translation.quality().expect("quality").flags.to_string()
    }

    #[test]
    fn the_built_in_model_has_its_table() {
        let translator = builtin();
        assert!(translator.model().notes.is_empty(), "{:?}", translator.model().notes);
        let table = translator.calibration();
        assert!(table.own && table.sentence_count >= Calibration::LEAST_SENTENCES);
        assert!(table.lengths.least > 0.5 && table.lengths.greatest < 2.0);
        let options = translator.options().with_quality(true);
        let translation =
            translate(&translator, &["Two dogs play in the snow."], &options).remove(0);
        let quality = translation.quality().expect("quality");
        assert!(quality.is_calibrated() && quality.flags.is_empty());
        assert!(translation.words(0).iter().all(|word| word.quality.is_some()));
    }

    /// What cannot be spelt is flagged unless it is carried; what is copied on purpose is no fault.
    #[test]
    fn characters_that_cannot_be_spelt_are_flagged() {
        let translator = builtin();
        let options = translator.options().with_quality(true);
        let carried = options.clone().with_carry(Carry::On);
        let text = "Please write to 東京 tomorrow morning.";
        assert!(flags(&translator, text, &options).contains("unknown"));
        assert!(!flags(&translator, text, &carried).contains("unknown"));
        for text in ["", "   ", "42", "🦀", "https://example.org/a"] {
            let translation = translate(&translator, &[text], &carried).remove(0);
            let quality = translation.quality().expect("quality");
            assert!(quality.flags.is_empty(), "{text}: {:?}", quality.flags);
            assert_eq!(quality.score(), None, "{text}");
        }
    }

    #[test]
    fn a_text_that_was_cut_is_flagged() {
        let translator = builtin();
        let mut options = translator.options().with_quality(true);
        options.search.max_source = 12;
        let text =
            "The old man went to the market, bought some bread, and walked home in the rain.";
        assert!(flags(&translator, text, &options).contains("cut"));
        // Without a place to cut it is copied.
        let copied = flags(&translator, &"abcdefgh".repeat(200), &options);
        assert!(copied.contains("cut"), "{copied}");
    }

    /// A batch, a stream and a service judge alike, in any company.
    #[test]
    fn all_ways_judge_alike() {
        let translator = builtin();
        let options = translator.options().with_quality(true).with_carry(Carry::On);
        let options = options.with_split(Split::Sentence);
        let texts = [
            "Two dogs play in the snow. It was 147 metres high.",
            "Hello {name}, how are you?",
            "",
            "THE QUICK BROWN FOX JUMPS",
            "One. Two. Three.",
        ];
        let view = |t: &Translation| (t.quality().cloned(), t.sentences.clone(), t.words(0));
        let alone: Vec<_> =
            texts.iter().map(|text| view(&translate(&translator, &[text], &options)[0])).collect();
        let together: Vec<_> = translate(&translator, &texts, &options).iter().map(view).collect();
        assert_eq!(alone, together);
        let mut streamed = Vec::new();
        let stream = StreamOptions::new(options.clone(), translator.workers());
        let lines = texts.iter().map(|text| Ok(Line::new(*text)));
        let done = translator.stream(lines, &stream, |answer| {
            streamed.push(view(&answer.translation));
            Ok::<(), Error>(())
        });
        done.expect("a stream");
        assert_eq!(streamed, alone);
        let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
        let requests: Vec<_> =
            texts.iter().map(|t| Request::new(t).with_options(&options)).collect();
        let served = service.translate_batch(&requests).expect("translations");
        assert_eq!(served.iter().map(view).collect::<Vec<_>>(), alone);
    }
}
