//! Device-side beam search on random answers: whether the device chooses the hypotheses that the host would.

use peregrine_model::Finish;
use peregrine_nn::{Choice, Choices, DeviceBeam, RowRequest, Scoring, TopKQuery};

use crate::Error;
use crate::backend::Cuda;
use crate::driver::Address;
use crate::memory::NONE;
use crate::output::OutputLayer;
use crate::trial::{Shape, Trial};

/// The hypothesis at a place: its word, the row it goes on from, and the bits of its path's score.
type Place = (u32, u32, u32);

/// The places of a query, and for each sentence its first place and the width of its beam.
#[derive(PartialEq)]
struct Outcome {
    places: Vec<Option<Place>>,
    widths: Vec<(u32, u32)>,
}

/// How a sentence is searched.
#[derive(Debug, Clone, Copy)]
struct Search {
    beam: usize,
    finish: Finish,
    scoring: Scoring,
    /// The sentence's first place in the last query.
    follows: Option<u32>,
}

const fn search(beam: usize, finish: Finish) -> Search {
    Search { beam, finish, scoring: Scoring::LogProbability, follows: None }
}

/// Greedy search, which needs no scores.
const GREEDY: Search = Search { scoring: Scoring::Logit, ..search(1, Finish::Shrink) };

/// Searches that share a query: equal ones, and mixed ones.
const MIXTURES: [&[Search]; 5] = {
    use Finish::{Full, FullBounded, Shrink};
    [
        &[search(2, Shrink)],
        &[search(4, Full)],
        &[search(5, FullBounded)],
        &[search(32, Full), GREEDY, search(31, FullBounded), search(2, Shrink)],
        &[
            GREEDY,
            search(4, Full),
            search(1, Shrink),
            search(4, Shrink),
            search(7, FullBounded),
            search(3, Full),
        ],
    ]
};

/// Searches the beams of many sentences on the device, in three steps, each in another order and from the places of the
/// step before, and compares the hypotheses that go on with those of a sort of all candidates. Returns the number of
/// searches and what was wrong.
pub fn try_device_beams(gpu: &Cuda) -> Result<(usize, Vec<String>), Error> {
    // Few words differ, so that many scores are equal.
    const SHAPES: [Shape; 4] = [
        Shape { rows: 12, width: 64, words: 30_000, different: 300 },
        Shape { rows: 200, width: 32, words: 9_001, different: 40 },
        Shape { rows: 35, width: 24, words: 7, different: 7 },
        Shape { rows: 140, width: 16, words: 500, different: 9 },
    ];
    let (mut searched, mut wrong) = (0, Vec::new());
    for shape in &SHAPES {
        let trial = Trial::new(gpu, shape);
        for mixture in MIXTURES {
            let mut searches = sentences(mixture, shape.rows);
            let mut before = None;
            for step in 0..3 {
                let (found, expected) = search_step(&trial, &searches, step, before.as_ref())?;
                for (search, (first, _)) in searches.iter_mut().zip(&expected.widths) {
                    search.follows = Some(*first);
                }
                searched += searches.len();
                searches.rotate_left(1);
                if found != expected {
                    wrong.push(difference(&found, &expected, mixture, step));
                }
                before = Some(expected);
            }
        }
    }
    Ok((searched, wrong))
}

/// Sentences with a row for each of their places, until there are no more rows; the last has the rows that are left.
fn sentences(mixture: &[Search], rows: usize) -> Vec<Search> {
    let (mut sentences, mut left) = (Vec::new(), rows);
    for search in mixture.iter().cycle() {
        if left == 0 {
            break;
        }
        let beam = search.beam.min(left);
        left -= beam;
        sentences.push(Search { beam, ..*search });
    }
    sentences
}

/// One step: what the device finds, and what a sort of all candidates finds.
fn search_step(
    trial: &Trial,
    searches: &[Search],
    step: usize,
    before: Option<&Outcome>,
) -> Result<(Outcome, Outcome), Error> {
    let mut requests = Vec::new();
    for (sentence, search) in searches.iter().enumerate() {
        let free = sentence % 4 == step;
        requests.extend((0..search.beam).map(|place| RowRequest {
            count: match search.finish {
                Finish::Shrink => search.beam,
                Finish::Full | Finish::FullBounded => 2 * search.beam,
            },
            banned: &[],
            forced: free.then_some(3),
            path: -(place as f32) / 8.0,
            scoring: search.scoring,
        }));
    }
    let best = |requests, device_beams| {
        trial.best(OutputLayer::Epilogue, TopKQuery { requests, device_beams })
    };
    let unforced: Vec<RowRequest<'_>> =
        requests.iter().map(|request| RowRequest { forced: None, ..*request }).collect();
    let words = best(&unforced, None);
    let (mut device_beams, mut first) = (Vec::new(), 0);
    for (sentence, search) in searches.iter().enumerate() {
        let beam = search.beam as u32;
        // The end symbol is among the best words, those of the second row of a beam.
        let row = (first + 1).min(requests.len() - 1);
        device_beams.push(DeviceBeam {
            rows: beam,
            follows: search.follows,
            // Of the first beams one in three is narrower.
            width: if sentence % 3 == 2 && beam > 1 { beam - 1 } else { beam },
            free: sentence % 4 == step,
            beam,
            finish: search.finish,
            end: words.of(row).first().map_or(0, |choice| choice.token),
        });
        first += search.beam;
    }
    let answers = best(&requests, Some(&device_beams));
    Ok((outcome(trial, &device_beams)?, sorted(&device_beams, &requests, &answers, before)))
}

/// Reads the places from the device.
fn outcome(trial: &Trial, device_beams: &[DeviceBeam]) -> Result<Outcome, Error> {
    let device = trial.gpu.device();
    let lists = device.record(|segment| Ok(segment.places().lists()))?;
    let all: u32 = device_beams.iter().map(|device_beam| device_beam.beam).sum();
    let read = |list: Address| -> Result<Vec<u32>, Error> {
        let mut values = vec![0.0; all as usize];
        device.download(list, &mut values)?;
        Ok(values.into_iter().map(f32::to_bits).collect())
    };
    let (words, rows) = (read(lists.words)?, read(lists.parents)?);
    let (paths, widths) = (read(lists.paths)?, read(lists.widths)?);
    let place = |i: usize| (words[i] != NONE).then_some((words[i], rows[i], paths[i]));
    let mut first = 0;
    let width = |device_beam: &DeviceBeam| {
        let of = (first, widths[first as usize]);
        first += device_beam.beam;
        of
    };
    let places = (0..all as usize).map(place).collect();
    Ok(Outcome { places, widths: device_beams.iter().map(width).collect() })
}

/// The outcome by a sort of all candidates.
fn sorted(
    device_beams: &[DeviceBeam],
    requests: &[RowRequest<'_>],
    answers: &Choices,
    before: Option<&Outcome>,
) -> Outcome {
    let mut outcome = Outcome { places: Vec::new(), widths: Vec::new() };
    for device_beam in device_beams {
        let (first, beam) = (outcome.places.len(), device_beam.beam as usize);
        let followed = before.zip(device_beam.follows);
        let mut all: Vec<(f32, u32, Choice)> = Vec::new();
        // Every sentence has a row for each place.
        for (row, request) in requests.iter().enumerate().skip(first).take(beam) {
            let path = match followed {
                None => Some(request.path),
                Some((before, places)) => before.places[places as usize + row - first]
                    .map(|(_, _, path)| f32::from_bits(path)),
            };
            let Some(path) = path else { continue };
            let sum = |choice: &Choice| path + if device_beam.free { 0.0 } else { choice.score };
            all.extend(answers.of(row).iter().map(|choice| (sum(choice), row as u32, *choice)));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let width_of = |(before, places): (&Outcome, u32)| {
            before.widths.iter().find(|(first, _)| *first == places).map(|(_, width)| *width)
        };
        let width = followed.and_then(width_of).unwrap_or(device_beam.width);
        let shrinks = device_beam.finish == Finish::Shrink;
        let ends = |candidate: &&(f32, u32, Choice)| candidate.2.token == device_beam.end;
        let seen = if shrinks { width as usize } else { beam };
        let (best, rest) = all.split_at(seen.min(all.len()));
        let ended = best.iter().filter(ends).count();
        let mut rest = rest.iter().filter(|candidate| !ends(candidate));
        let winners: Vec<_> = match device_beam.finish {
            Finish::Shrink => best.iter().filter(|c| !ends(c)).collect(),
            Finish::FullBounded => {
                best.iter().filter(|c| !ends(c)).chain(rest.by_ref().take(ended)).collect()
            }
            Finish::Full => {
                best.iter().filter_map(|c| if ends(&c) { rest.next() } else { Some(c) }).collect()
            }
        };
        let place = |&(path, row, choice): &(f32, u32, Choice)| (choice.token, row, path.to_bits());
        outcome.places.extend(winners.into_iter().map(|winner| Some(place(winner))));
        outcome.places.resize(first + beam, None);
        outcome.widths.push((first as u32, width - if shrinks { ended as u32 } else { 0 }));
    }
    outcome
}

fn difference(found: &Outcome, expected: &Outcome, mixture: &[Search], step: usize) -> String {
    let first = found.places.iter().zip(&expected.places).position(|(a, b)| a != b);
    let (a, b) = first.map_or((None, None), |i| (found.places[i], expected.places[i]));
    format!("{mixture:?}, step {step}: place {first:?} has {a:?}, not {b:?}")
}
