//! Any two ways to run the same text give the same bytes: threads, batches, policies, where the text
//! comes from, a job stopped anywhere and resumed; in integers the instruction set too.

use std::process::Stdio;

use crate::common::nonsense::{Nonsense, assert_fine, odd_lines};
use crate::common::{run, run_with, stdout};
use peregrine::{Level, has_instructions};
use proptest::prelude::*;

/// One way to run `translate`, leaving its words alone.
#[derive(Debug, Clone)]
struct Way {
    threads: u32,
    sentences: u32,
    tokens: u32,
    policy: &'static str,
    memory: Option<&'static str>,
    from_pipe: bool,
    to_pipe: bool,
}

impl Way {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--threads={}", self.threads),
            format!("--batch-sentences={}", self.sentences),
            format!("--batch-tokens={}", self.tokens),
            format!("--set=batching={}", self.policy),
        ];
        arguments.extend(self.memory.map(|memory| format!("--memory={memory}")));
        arguments
    }
}

const POLICIES: &[&str] = &["naive", "shrink", "sorted", "top-up", "auto"];

fn ways() -> impl Strategy<Value = Way> {
    let memory = prop_oneof![Just(None), Just(Some("60MB")), Just(Some("1GB"))];
    let streams = (any::<bool>(), any::<bool>());
    (1..4_u32, 1..70_u32, 1..3000_u32, prop::sample::select(POLICIES), memory, streams).prop_map(
        |(threads, sentences, tokens, policy, memory, (from_pipe, to_pipe))| Way {
            threads,
            sentences,
            tokens,
            policy,
            memory,
            from_pipe,
            to_pipe,
        },
    )
}

/// Options that change the words: each set of them has one right answer.
fn settings() -> impl Strategy<Value = Vec<&'static str>> {
    let precision = prop_oneof![Just("float32"), Just("int8"), Just("int16"), Just("bfloat16")];
    let split = prop_oneof![Just("none"), Just("sentence"), Just("paragraph")];
    let form = prop_oneof![
        Just(None),
        Just(Some("--json")),
        Just(Some("--n-best")),
        Just(Some("--alignment"))
    ];
    (precision, 1..4_usize, split, form).prop_map(|(precision, beam, split, form)| {
        let beam = ["1", "2", "4"][beam - 1];
        let mut settings =
            vec!["--precision", precision, "--beam", beam, "--split", split, "--guards", "off"];
        settings.extend(form);
        settings
    })
}

fn output_of(model: &Nonsense, text: &[u8], way: &Way, settings: &[&str]) -> Vec<u8> {
    let mut arguments: Vec<String> = settings.iter().map(ToString::to_string).collect();
    arguments.extend(way.arguments());
    if !way.from_pipe {
        arguments.extend(["-i", "in"].map(String::from));
    }
    if !way.to_pipe {
        arguments.extend(["-o", "out"].map(String::from));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = model.translate(&arguments);
    let output = if way.from_pipe {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it");
        let mut stdin = child.stdin.take().expect("a pipe");
        let text = text.to_vec();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &text));
        let output = child.wait_with_output().expect("it");
        writer.join().expect("written").expect("written");
        output
    } else {
        command.output().expect("it")
    };
    assert_fine(&output);
    if way.to_pipe { output.stdout } else { std::fs::read(model.path("out")).expect("an output") }
}

/// The job, stopped when its output has grown to about `share` and resumed in another way.
fn resumed(
    model: &Nonsense,
    ways: [&Way; 2],
    settings: &[&str],
    right: &[u8],
    share: f64,
) -> Vec<u8> {
    let command = |way: &Way, more: &[&str]| {
        let mut arguments: Vec<String> = settings.iter().map(ToString::to_string).collect();
        arguments.extend(way.arguments());
        arguments
            .extend(["-q", "-i", "in", "-o", "job"].iter().chain(more).map(ToString::to_string));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        model.translate(&arguments)
    };
    let _ = std::fs::remove_file(model.path("job"));
    let mut child = command(ways[0], &[]).spawn().expect("it");
    let enough = (share * right.len() as f64) as u64;
    while std::fs::metadata(model.path("job")).map_or(0, |found| found.len()) < enough
        && child.try_wait().expect("its state").is_none()
    {
        std::thread::yield_now();
    }
    let _ = child.kill();
    child.wait().expect("its end");
    assert!(right.starts_with(&std::fs::read(model.path("job")).unwrap_or_default()));
    assert_fine(&command(ways[1], &["--resume"]).output().expect("it"));
    std::fs::read(model.path("job")).expect("an output")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "slow: .ci/run runs it"]
    fn all_ways_lead_to_the_same_bytes(
        first in ways(),
        second in ways(),
        settings in settings(),
        lines in 1..1500_u32,
        share in 0.0..1.0_f64,
    ) {
        let model = Nonsense::new();
        let text = odd_lines(lines);
        std::fs::write(model.path("in"), &text).expect("an input");
        let right = output_of(&model, &text, &first, &settings);
        prop_assert!(output_of(&model, &text, &second, &settings) == right);
        // Lists of hypotheses have another number of lines, so that a finished job cannot be told.
        if !settings.contains(&"--n-best") {
            let again = resumed(&model, [&second, &first], &settings, &right, share);
            prop_assert!(again == right);
        }
    }
}

#[test]
fn text_may_be_given_as_arguments() {
    let lines = ["A dog.", "", "Two men talk. A cat sleeps."];
    let piped =
        run_with(&["translate", "-m", &crate::common::model()], lines.join("\n").as_bytes());
    let model = crate::common::model();
    assert_eq!(stdout(run(&[&["translate", "-m", &model], &lines[..]].concat())), stdout(piped));
}

/// In integers all instruction sets give the same words and the same digits of their scores.
#[test]
fn instruction_sets_agree_in_integers() {
    let source = std::fs::read(format!("{}/input.en", crate::common::model())).expect("a text");
    let levels: Vec<Level> =
        Level::ALL.into_iter().filter(|&level| has_instructions(level)).collect();
    for (precision, beam) in [("int8", "1"), ("int8", "4"), ("int16", "4")] {
        let translate = |level: Level| {
            let model = crate::common::model();
            let arguments =
                ["translate", "--device", "cpu", "-m", &model, "--json", "--alignment=soft"];
            let isa = format!("isa={}", level.name());
            let more = ["--precision", precision, "--beam", beam, "--set", &isa];
            stdout(run_with(&[&arguments[..], &more].concat(), &source))
        };
        let right = translate(Level::Portable);
        for &level in &levels {
            assert!(translate(level) == right, "{precision}, beam {beam}, {}", level.name());
        }
    }
}
