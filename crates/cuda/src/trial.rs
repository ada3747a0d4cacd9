//! Output layers on random weights: whether they agree, and how long each takes.

use std::time::Instant;

use peregrine_model::Weight;
use peregrine_nn::{
    Backend, Candidates, Choice, Choices, Dense, Embed, RowRequest, Scoring, TopKQuery, choose,
};

use crate::Error;
use crate::backend::Cuda;
use crate::device::{Segment, bucket};
use crate::kernel;
use crate::memory::Rows;
use crate::output::{self, Logits, Output, OutputLayer};

/// Seconds the parts of an output layer take on a GPU.
#[derive(Debug, Clone)]
pub struct OutputTimes {
    /// Of the product that writes logits.
    pub product: f64,
    /// Of adding the bias.
    pub bias: f64,
    /// Of softmax.
    pub softmax: f64,
    /// Of the top k.
    pub k_best: f64,
    /// Of bias, softmax and top k in one kernel.
    pub fused: f64,
    /// Of the best word only, without softmax; for one choice a row.
    pub best: Option<f64>,
    /// From activations to the host's answer, for each layer that can.
    pub whole: Vec<(OutputLayer, f64)>,
}

/// Activations and an output layer.
pub(crate) struct Trial {
    pub(crate) gpu: Cuda,
    output: Output,
    x: Rows,
    pub(crate) rows: usize,
    words: usize,
}

/// The shape of a trial.
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) words: usize,
    /// The number of different words: each of the others has exactly the scores of one of them.
    pub(crate) different: usize,
}

impl Trial {
    pub(crate) fn new(gpu: &Cuda, shape: &Shape) -> Trial {
        let mut random = Random(1 + shape.words as u64);
        let mut matrix = |rows: usize, different: usize, size: f32| {
            let some: Vec<f32> =
                (0..different * shape.width).map(|_| size * random.next()).collect();
            let values: Vec<f32> = some.iter().copied().cycle().take(rows * shape.width).collect();
            Weight::from_f32(vec![rows, shape.width], &values)
        };
        let weight = matrix(shape.words, shape.different, 2.0 / (shape.width as f32).sqrt());
        let table = gpu.prepare_table(&matrix(shape.rows, shape.rows, 2.0));
        let some: Vec<f32> = (0..shape.different).map(|_| random.next()).collect();
        let bias: Vec<f32> = some.into_iter().cycle().take(shape.words).collect();
        let bias = Weight::from_f32(vec![shape.words], &bias);
        let layer = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        let output = gpu.prepare_output(layer);
        let ids: Vec<Option<u32>> = (0..shape.rows as u32).map(Some).collect();
        let at = vec![0; shape.rows];
        let mut x = gpu.rows();
        gpu.embed(
            &table,
            Embed { ids: &ids, scale: 1.0, at: &at, positions: None, follows: &[] },
            &mut x,
        );
        Trial { gpu: gpu.clone(), output, x, rows: shape.rows, words: shape.words }
    }

    pub(crate) fn best(&self, layer: OutputLayer, query: TopKQuery<'_>) -> Choices {
        self.best_of(&self.x, layer, query)
    }

    fn best_of(&self, x: &Rows, layer: OutputLayer, query: TopKQuery<'_>) -> Choices {
        let gpu = self.gpu.clone().with_output_layer(layer);
        let (mut pending, mut choices) = (Default::default(), Choices::default());
        gpu.top_k(x, &self.output, &vec![None; x.count], query, &mut pending);
        gpu.take_top_k(&mut pending, &mut choices);
        choices
    }

    /// Where a layer's answers differ from the host's search of the logits, or from the answers of single rows.
    fn differences(&self, requests: &[RowRequest<'_>]) -> Vec<String> {
        let mut logits = Vec::new();
        let (selections, wanted) = (vec![None; self.rows], vec![true; self.rows]);
        self.gpu.logits(&self.x, &self.output, &selections, &wanted, &mut logits);
        let mut found = Vec::new();
        for layer in OutputLayer::ALL {
            let choices = self.best(layer, TopKQuery { requests, device_beams: None });
            let mut differs = |row: usize, expected: &[Choice], who: &str| {
                let (name, words, rows, request) =
                    (layer.name(), self.words, self.rows, &requests[row]);
                let got = choices.of(row);
                found.push(format!(
                    "{name} of {words} words, row {row} of {rows}, {request:?}: {got:?}, not {expected:?} as {who}",
                ));
            };
            let mut expected = Vec::new();
            for (row, scores) in logits.chunks(self.words).enumerate() {
                choose(Candidates { scores, words: None }, &requests[row], &mut expected);
                if !alike(choices.of(row), &expected) {
                    differs(row, &expected, "on the host");
                    break;
                }
            }
            for row in (0..self.rows).step_by(1 + self.rows / 32) {
                let mut one = self.gpu.rows();
                self.gpu.gather(&self.x, &[row as u32], &mut one);
                let query = TopKQuery { requests: &requests[row..=row], device_beams: None };
                let alone = self.best_of(&one, layer, query);
                if bits(choices.of(row)) != bits(alone.of(0)) {
                    differs(row, alone.of(0), "alone");
                    break;
                }
            }
        }
        found
    }

    /// Seconds of work on the device, the median of some rounds. The work is recorded `TOGETHER` times and sent once, so
    /// that the latency of a submission does not count.
    fn time(&self, rounds: usize, work: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        const TOGETHER: usize = 20;
        self.median(rounds, || {
            (0..TOGETHER).try_for_each(|_| work())?;
            let start = Instant::now();
            self.gpu.finish()?;
            Ok(start.elapsed().as_secs_f64() / TOGETHER as f64)
        })
    }

    fn median(&self, rounds: usize, round: impl Fn() -> Result<f64, Error>) -> Result<f64, Error> {
        /// A segment is replayed as a graph when it was seen twice in each of two stages.
        const WARM_UP: usize = 5;
        self.gpu.finish()?;
        (0..WARM_UP).try_for_each(|_| round().map(drop))?;
        let mut seconds = (0..rounds.max(1)).map(|_| round()).collect::<Result<Vec<f64>, _>>()?;
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[seconds.len() / 2])
    }
}

/// Whether words are the same and scores as close as the order of sums allows.
fn alike(found: &[Choice], expected: &[Choice]) -> bool {
    const CLOSE: f32 = 1e-5;
    let close = |a: f32, b: f32| a == b || (a - b).abs() <= CLOSE * (1.0 + b.abs());
    let same = |(a, b): (&Choice, &Choice)| a.token == b.token && close(a.score, b.score);
    found.len() == expected.len() && found.iter().zip(expected).all(same)
}

fn bits(choices: &[Choice]) -> Vec<(u32, u32)> {
    choices.iter().map(|choice| (choice.token, choice.score.to_bits())).collect()
}

/// Runs the same queries on every output layer and compares its answers with the host's search of the logits and with the
/// answers of single rows. Questions have words with equal scores, banned and forced words, and rows that ask for many
/// and for few words side by side. Returns the number of queries and what was wrong. A quick trial has fewer shapes:
/// `racecheck` of compute-sanitizer needs minutes for all.
pub fn try_output_layers(gpu: &Cuda, quick: bool) -> Result<(usize, Vec<String>), Error> {
    const SHAPES: [Shape; 6] = [
        Shape { rows: 1, width: 64, words: 30_000, different: 30_000 },
        Shape { rows: 5, width: 24, words: 7, different: 7 },
        Shape { rows: 40, width: 64, words: 9_001, different: 100 },
        Shape { rows: 17, width: 16, words: 20_011, different: 1 },
        Shape { rows: 130, width: 32, words: 8_192, different: 8_000 },
        Shape { rows: 300, width: 128, words: 2_047, different: 2_047 },
    ];
    const SCORINGS: [Scoring; 3] =
        [Scoring::Logit, Scoring::LogProbability, Scoring::LogProbabilityOfAllowed];
    let (shapes, counts): (_, &[usize]) =
        if quick { (&SHAPES[..4], &[1, 5, 16]) } else { (&SHAPES[..], &[1, 2, 5, 9, 16, 32]) };
    let (mut queries, mut wrong) = (0, Vec::new());
    for shape in shapes {
        let trial = Trial::new(gpu, shape);
        let words = shape.words as u32;
        let mut banned: Vec<u32> = [0, 1, 5, words / 2, words - 1].to_vec();
        banned.sort_unstable();
        banned.dedup();
        for &most in counts {
            let request = |row: usize, scoring: Scoring| RowRequest {
                count: 1 + row % most,
                banned: if row.is_multiple_of(2) { &banned } else { &[] },
                forced: (row % 7 == 3).then_some(row as u32 % (words + 1)),
                path: 0.0,
                scoring,
            };
            // Some lists are too long for the papers' layers, and some for shared memory.
            let mixed = |row: usize| {
                let request = request(row, SCORINGS[row % 3]);
                let count = [(10, 40), (16, 2000)].iter().find(|(rest, _)| row % 17 == *rest);
                RowRequest { count: count.map_or(request.count, |(_, count)| *count), ..request }
            };
            let rows = 0..shape.rows;
            let alike =
                SCORINGS.map(|scoring| rows.clone().map(|row| request(row, scoring)).collect());
            let all: Vec<Vec<RowRequest<'_>>> =
                alike.into_iter().chain([rows.map(mixed).collect()]).collect();
            for requests in all {
                queries += shape.rows;
                wrong.extend(trial.differences(&requests));
            }
        }
        gpu.finish()?;
    }
    Ok((queries, wrong))
}

/// Times output layers of `words` words for `rows` rows of `width` columns that ask for `choices` words each.
pub fn time_output_layers(
    gpu: &Cuda,
    (rows, width, words): (usize, usize, usize),
    choices: usize,
    rounds: usize,
) -> Result<OutputTimes, Error> {
    let trial = Trial::new(gpu, &Shape { rows, width, words, different: words });
    let (x, output, device) = (&trial.x, &trial.output, gpu.device());
    let requests = |scoring| {
        vec![RowRequest { count: choices, banned: &[], forced: None, path: 0.0, scoring }; rows]
    };
    let asking = |scoring, find: &dyn Fn(&mut Segment<'_>, kernel::Asked) -> Result<(), Error>| {
        let requests = requests(scoring);
        trial.time(rounds, || {
            device.record(|segment| {
                let query = TopKQuery { requests: &requests, device_beams: None };
                let asked = output::asked(segment, query, bucket(choices))?;
                find(segment, asked)
            })
        })
    };
    let scored = Scoring::LogProbability;
    let logits = Logits::new(device, OutputLayer::Separate, x, output)?;
    let product = trial.time(rounds, || logits.multiply(device, x, output))?;
    let bias = trial.time(rounds, || device.record(|segment| logits.add_bias(segment)))?;
    // The bias was added many times.
    logits.multiply(device, x, output)?;
    let softmax = asking(scored, &|segment, asked| logits.softmax(segment, asked))?;
    let k_best = asking(scored, &|segment, asked| logits.k_best(segment, asked).map(drop))?;
    let fused = asking(scored, &|segment, asked| {
        logits.find(segment, OutputLayer::Fused, asked).map(drop)
    })?;
    let best = if choices == 1 {
        let logits = Logits::new(device, OutputLayer::Best, x, output)?;
        logits.multiply(device, x, output)?;
        let find = |segment: &mut Segment<'_>, asked| {
            logits.find(segment, OutputLayer::Best, asked).map(drop)
        };
        Some(asking(Scoring::Logit, &find)?)
    } else {
        None
    };
    let mut whole = Vec::new();
    for layer in OutputLayer::ALL {
        let scoring = if layer == OutputLayer::Best { Scoring::Logit } else { scored };
        let requests = requests(scoring);
        let can = requests.iter().all(|request| layer.can_answer(request, false));
        if !can || layer.answering(&requests) != layer {
            continue;
        }
        let seconds = trial.median(rounds, || {
            let start = Instant::now();
            trial.best(layer, TopKQuery { requests: &requests, device_beams: None });
            Ok(start.elapsed().as_secs_f64())
        })?;
        whole.push((layer, seconds));
    }
    Ok(OutputTimes { product, bias, softmax, k_best, fused, best, whole })
}

/// Pseudo-random numbers between -1 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
