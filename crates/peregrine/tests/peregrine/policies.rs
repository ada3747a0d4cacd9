//! Contract 2: a line's translation depends neither on the lines around it nor on who is in the batch,
//! when, and on how many threads.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::nonsense;
use peregrine::measure::of_length;
use peregrine::model::Autoregression;
use peregrine::{
    BatchSize, Error, Guard, Line, Options, Policy, Request, Split, StreamOptions, Translator,
    Workers,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// What counts of a translation: text, and all scores to the last bit.
type Result = Vec<(String, Vec<u32>, bool)>;

fn results(translations: &[peregrine::Translation]) -> Vec<Result> {
    let one = |t: &peregrine::Translation| -> Result {
        let bits = |scores: &[f32]| scores.iter().map(|s| s.to_bits()).collect();
        let alternatives = t.alternatives.iter();
        alternatives.map(|a| (a.text.clone(), bits(&a.token_scores), a.ended)).collect()
    };
    translations.iter().map(one).collect()
}

fn translated(
    translator: &Translator,
    requests: &[Request<'_>],
    options: &Options,
    workers: &Workers,
) -> Vec<Result> {
    let translations = translator.translate_batch_with(requests, options, workers, None);
    results(&translations.expect("nothing can fail"))
}

/// Each line in a batch of its own.
fn one_at_a_time(translator: &Translator, lines: &[String], options: &Options) -> Vec<Result> {
    let workers = translator.workers().with_batch(BatchSize { sentences: 1, tokens: 1 });
    let one =
        |line: &String| translated(translator, &[Request::new(line)], options, &workers).remove(0);
    lines.iter().map(one).collect()
}

fn streamed(translator: &Translator, lines: &[String], options: &StreamOptions<'_>) -> Vec<Result> {
    let input = lines.iter().map(|text| Ok(Line::new(text.as_str())));
    let mut output = Vec::new();
    let summary = translator.stream(input, options, |answer| {
        assert_eq!(answer.number, output.len() as u64);
        output.push(answer.translation);
        Ok::<(), Error>(())
    });
    let summary = summary.expect("nothing can fail");
    assert_eq!(summary.lines, lines.len() as u64);
    results(&output)
}

fn line() -> impl Strategy<Value = String> {
    let words = |count| proptest::collection::vec(0..70_u32, count);
    let text =
        |words: Vec<u32>| words.iter().map(|w| format!("w{w}")).collect::<Vec<_>>().join(" ");
    prop_oneof![
        8 => words(1..12).prop_map(text),
        2 => words(12..40).prop_map(text),
        1 => Just(String::new()),
        1 => Just(" \u{3000}\t ".to_owned()),
        1 => "\\PC{0,20}",
        1 => Just("\u{fffd}\u{0}\u{fffd}".to_owned()),
    ]
}

fn options(translator: &Translator, beam: usize) -> Options {
    let mut options = translator.options().with_beam(beam);
    options.scores = true;
    options.n_best = beam;
    options
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_gives_what_one_at_a_time_gives(
        lines in proptest::collection::vec(line(), 0..60),
        policy in proptest::sample::select(Policy::ALL.to_vec()),
        threads in 1..=4_usize,
        sentences in 1..12_usize,
        tokens in 1..120_usize,
        beam in 1..4_usize,
        recurrent in any::<bool>(),
        guarded in any::<bool>(),
        threshold in proptest::option::of(0.0..=1.0_f32),
    ) {
        let autoregression = if recurrent {
            Autoregression::Ssru { layer_norm: false, projection: false }
        } else {
            Autoregression::SelfAttention
        };
        let translator = nonsense(autoregression);
        let mut options = options(&translator, beam);
        options.guard = guarded.then(Guard::default);
        let expected = one_at_a_time(&translator, &lines, &options);
        let batch = BatchSize { sentences, tokens };
        let workers = translator.workers().with_batch(batch).with_batching(policy);
        let mut workers = workers.with_threads(threads);
        workers.top_up_threshold = threshold;
        let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
        prop_assert_eq!(&translated(&translator, &requests, &options, &workers), &expected);
        let options = StreamOptions::new(options, workers);
        prop_assert_eq!(&streamed(&translator, &lines, &options), &expected);
    }
}

/// 10,000 lines with huge ones among them, through a budget that holds few of them at a time.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn ten_thousand_lines_come_back_in_order() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut lines: Vec<String> =
        (0..10_000).map(|_| line().new_tree(&mut runner).expect("a line").current()).collect();
    for place in [0, 77, 5_000, 9_999] {
        lines[place] = "w1 w2 w3 ".repeat(1_500);
    }
    let mut options = options(&translator, 1);
    options.search.max_length_factor = Some(1.5);
    let expected = one_at_a_time(&translator, &lines, &options);
    for (policy, threads) in Policy::ALL.into_iter().zip([2, 1, 4, 3, 2]) {
        let workers = translator.workers().with_batching(policy).with_threads(threads);
        let stream = StreamOptions::new(options.clone(), workers.with_memory(Some(1)));
        let results = streamed(&translator, &lines, &stream);
        assert!(results == expected, "{policy}");
    }
}

#[test]
fn forced_lengths_are_kept_by_every_policy() {
    let translator = nonsense(Autoregression::SelfAttention);
    let lengths = [3, 1, 17, 40, 5];
    let requests = lengths.map(|n| of_length("w1 w2 w3", n));
    for batching in Policy::ALL {
        let options = translator.options().with_beam(1);
        let workers = translator.workers().with_batching(batching);
        let translations = translator.translate_batch_with(&requests, &options, &workers, None);
        let translations = translations.expect("nothing can fail");
        let tokens = translations.iter().map(|t| t.alternatives[0].tokens.len());
        assert!(tokens.eq(lengths), "{batching}");
    }
}

#[test]
fn dead_rows_are_computed_by_the_naive_policy_alone() {
    let translator = nonsense(Autoregression::SelfAttention);
    let lengths = [2, 9, 4, 4, 30, 1];
    let requests = lengths.map(|n| of_length("w1 w2", n));
    for batching in Policy::ALL {
        let batch = BatchSize { sentences: 3, tokens: 1000 };
        let options = translator.options().with_beam(1);
        let workers = translator.workers().with_batching(batching).with_batch(batch);
        let mut stats = peregrine::Stats::default();
        translator
            .translate_batch_with(&requests, &options, &workers, Some(&mut stats))
            .expect("nothing can fail");
        let needed: usize = lengths.iter().sum();
        assert_eq!(stats.rows - stats.dead_rows, needed as u64, "{batching}");
        // Two batches of three, each as long as its longest.
        let computed = if batching == Policy::Naive { 3 * (9 + 30) } else { needed };
        assert_eq!(stats.rows, computed as u64, "{batching}");
        assert_eq!(stats.occupancy.iter().sum::<u64>(), stats.steps);
    }
}

#[test]
fn top_up_keeps_the_batch_full() {
    let translator = nonsense(Autoregression::SelfAttention);
    let lengths: Vec<usize> = (0..64).map(|i| 2 + (i * 7) % 20).collect();
    let requests: Vec<Request<'_>> = lengths.iter().map(|&n| of_length("w1 w2", n)).collect();
    let steps = |batching, sentences| {
        // A worker that has had another batch before forgets its size.
        let one = translator.workers().with_batch(BatchSize { sentences: 1, tokens: 1 });
        translated(&translator, &requests[..2], &translator.options(), &one);
        let batch = BatchSize { sentences: 8, tokens: 1000 };
        let options = translator.options().with_beam(1);
        let workers = translator.workers().with_batching(batching).with_batch(batch);
        let mut stats = peregrine::Stats::default();
        translator
            .translate_batch_with(&requests[..sentences], &options, &workers, Some(&mut stats))
            .expect("nothing can fail");
        stats.steps
    };
    assert!(steps(Policy::TopUp, 64) < steps(Policy::Shrink, 64));
    // More would be worth a trial of smaller batches, whose outcome depends on the clock.
    assert!(steps(Policy::Auto, 20) < steps(Policy::Shrink, 20));
}

#[test]
fn a_stream_stops_when_told_and_has_written_a_prefix() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = StreamOptions::new(options(&translator, 1), translator.workers());
    let stop = AtomicBool::new(false);
    options.stop = Some(&stop);
    // Without an end: only stopping ends it.
    let lines = (0_u32..).map(|i| {
        let text = format!("w{} w{}", i % 50, i % 7);
        Ok(Line::new(text))
    });
    let lines = lines.take_while(|_| !stop.load(Ordering::Relaxed));
    let mut next = 0;
    let summary = translator.stream(lines, &options, |answer| {
        assert_eq!(answer.number, next);
        next += 1;
        if next == 100 {
            stop.store(true, Ordering::Relaxed);
        }
        Ok::<(), Error>(())
    });
    let summary = summary.expect("nothing can fail");
    assert!(summary.lines >= 100 && summary.lines == next);
}

#[test]
fn errors_of_either_end_are_passed_on() {
    let translator = nonsense(Autoregression::SelfAttention);
    let options = StreamOptions::new(translator.options(), translator.workers());
    type Any = Box<dyn std::error::Error + Send + Sync>;
    let line = |text: &str| Ok::<Line, Any>(Line::new(text));
    let mut written = 0;
    let broken = [line("w1"), line("w2"), Err("broken".into()), line("w3")];
    let result = translator.stream(broken.into_iter(), &options, |_| {
        written += 1;
        Ok(())
    });
    let told = |result: std::result::Result<_, Any>| result.err().map(|error| error.to_string());
    assert_eq!((told(result).as_deref(), written), (Some("broken"), 2));
    let fine = (0..1000).map(|_| line("w1 w2"));
    let result = translator.stream(fine, &options, |answer| {
        if answer.number < 3 { Ok(()) } else { Err("full".into()) }
    });
    assert_eq!(told(result).as_deref(), Some("full"));
}

#[test]
fn paragraphs_keep_their_lines() {
    let translator = nonsense(Autoregression::SelfAttention);
    let mut options = options(&translator, 1);
    options.split = Split::Paragraph;
    let lines = ["W1 w2 w3.", "W4 w5", "w6. W7.", "", "w8"].map(str::to_owned);
    let stream = StreamOptions::new(options.clone(), translator.workers());
    let whole = streamed(&translator, &lines, &stream);
    assert_eq!(whole.len(), lines.len());
    options.split = Split::None;
    let one = |text: &str| {
        let request = [Request::new(text)];
        let workers = translator.workers();
        translated(&translator, &request, &options, &workers).remove(0).remove(0).0
    };
    // A sentence stands in the line in which it begins.
    assert_eq!(whole[0][0].0, one("W1 w2 w3."));
    assert_eq!(whole[1][0].0, one("W4 w5 w6."));
    assert_eq!(whole[2][0].0, one("W7."));
    assert_eq!(whole[3][0].0, "");
    assert_eq!(whole[4][0].0, one("w8"));
}

/// Products that are shared by several threads are the same.
#[test]
#[cfg_attr(not(feature = "builtin"), ignore = "no built-in model")]
fn threads_that_share_a_sentence() {
    let translator = Translator::builtin().expect("the built-in model");
    let lines = ["Good morning!", "Two dogs play in the snow.", "Where is the station?"];
    let requests = lines.map(Request::new);
    for (beam, sentences) in [(1, 1), (4, 2)] {
        let mut options = translator.options().with_beam(beam);
        options.scores = true;
        let mut workers = translator.workers();
        workers.batch.sentences = sentences;
        let alone = translated(&translator, &requests, &options, &workers);
        for threads in [2, 3] {
            workers.threads_per_sentence = threads;
            assert_eq!(translated(&translator, &requests, &options, &workers), alone);
        }
    }
}
