//! Races tried on random answers: whether the device lets those go on that search would.

use peregrine_model::Finish;
use peregrine_nn::{Ask, Choice, Choices, Contest, Question, Race, Scoring};

use crate::Error;
use crate::backend::Cuda;
use crate::driver::Address;
use crate::logits::OutputLayer;
use crate::memory::NONE;
use crate::trial::{Shape, Trial};

/// Who is at a place: the word, its row, and the path's bits.
type Place = (u32, u32, u32);

/// The places of a question, and a width a sentence.
#[derive(PartialEq)]
struct Outcome {
    places: Vec<Option<Place>>,
    widths: Vec<u32>,
}

/// Lets sentences race twice, the second time from the places of the first, and compares who went on with
/// what sorting all candidates gives. Gives the number of races and what was wrong.
pub fn try_races(gpu: &Cuda) -> Result<(usize, Vec<String>), Error> {
    // Few different words: many scores are equal.
    const SHAPES: [(usize, Shape); 4] = [
        (2, Shape { rows: 12, width: 64, words: 30_000, different: 300 }),
        (4, Shape { rows: 200, width: 32, words: 9_001, different: 40 }),
        (5, Shape { rows: 35, width: 24, words: 7, different: 7 }),
        (32, Shape { rows: 96, width: 16, words: 500, different: 9 }),
    ];
    let (mut races, mut wrong) = (0, Vec::new());
    for (beam, shape) in &SHAPES {
        let trial = Trial::new(gpu, shape);
        for finish in [Finish::Shrink, Finish::Full, Finish::FullBounded] {
            let mut before = None;
            for step in 0..3 {
                let contests: Vec<Contest> = contests(*beam, shape.rows, step).collect();
                let (found, expected) = race(&trial, *beam, finish, &contests, before.as_ref())?;
                races += contests.len();
                if found != expected {
                    wrong.push(difference(&found, &expected, *beam, finish, step));
                }
                before = Some(expected);
            }
        }
    }
    Ok((races, wrong))
}

/// As many rows a sentence as it has places; at first one in three is less wide.
fn contests(beam: usize, rows: usize, step: usize) -> impl Iterator<Item = Contest> {
    (0..rows / beam).map(move |sentence| Contest {
        rows: beam as u32,
        follows: (step > 0).then_some((sentence * beam) as u32),
        width: if sentence % 3 == 2 { beam as u32 - 1 } else { beam as u32 },
        free: sentence % 4 == step,
    })
}

/// What the device finds, and what it should.
fn race(
    trial: &Trial,
    beam: usize,
    finish: Finish,
    contests: &[Contest],
    before: Option<&Outcome>,
) -> Result<(Outcome, Outcome), Error> {
    let count = if finish == Finish::Shrink { beam } else { 2 * beam };
    let ask = |row: usize| Ask {
        count,
        banned: &[],
        forced: contests.get(row / beam).is_some_and(|contest| contest.free).then_some(3),
        path: -((row % beam) as f32) / 8.0,
    };
    let asks: Vec<Ask<'_>> = (0..trial.rows).map(ask).collect();
    let unforced: Vec<Ask<'_>> = asks.iter().map(|ask| Ask { forced: None, ..*ask }).collect();
    let asking = |asks, race| {
        let question = Question { asks, scoring: Scoring::LogProbability, race };
        trial.best(OutputLayer::Epilogue, question)
    };
    // What ends hypotheses is among the best words, of the second row at least.
    let end = asking(&unforced, None).of(1).first().map_or(0, |choice| choice.token);
    let race = Race { beam, finish, end, contests };
    let answers = asking(&asks, Some(race));
    Ok((outcome(trial, contests.len(), beam)?, sorted(&race, &asks, &answers, before)))
}

/// Reads what the device keeps.
fn outcome(trial: &Trial, sentences: usize, beam: usize) -> Result<Outcome, Error> {
    let device = trial.gpu.device();
    let lists = device.record(|segment| Ok(segment.places().lists()))?;
    let read = |list: Address, count: usize| -> Result<Vec<u32>, Error> {
        let mut values = vec![0.0; count];
        device.download(list, &mut values)?;
        Ok(values.into_iter().map(f32::to_bits).collect())
    };
    let all = sentences * beam;
    let (words, rows) = (read(lists.words, all)?, read(lists.parents, all)?);
    let paths = read(lists.paths, all)?;
    let place = |i: usize| (words[i] != NONE).then_some((words[i], rows[i], paths[i]));
    Ok(Outcome { places: (0..all).map(place).collect(), widths: read(lists.widths, sentences)? })
}

/// The same by sorting all candidates.
fn sorted(
    race: &Race<'_>,
    asks: &[Ask<'_>],
    answers: &Choices,
    before: Option<&Outcome>,
) -> Outcome {
    let mut outcome = Outcome { places: Vec::new(), widths: Vec::new() };
    for (sentence, contest) in race.contests.iter().enumerate() {
        let mut all: Vec<(f32, u32, Choice)> = Vec::new();
        let rows = asks.iter().enumerate().skip(sentence * race.beam).take(race.beam);
        for (row, ask) in rows {
            let path = match before {
                None => Some(ask.path),
                Some(before) => before.places[row].map(|place| f32::from_bits(place.2)),
            };
            let Some(path) = path else { continue };
            let sum = |choice: &Choice| path + if contest.free { 0.0 } else { choice.score };
            all.extend(answers.of(row).iter().map(|choice| (sum(choice), row as u32, *choice)));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let width = before.map_or(contest.width, |before| before.widths[sentence]);
        let ends = |candidate: &&(f32, u32, Choice)| candidate.2.token == race.end;
        let seen = if race.finish == Finish::Shrink { width as usize } else { race.beam };
        let (best, rest) = all.split_at(seen.min(all.len()));
        let ended = best.iter().filter(ends).count();
        let mut rest = rest.iter().filter(|candidate| !ends(candidate));
        let winners: Vec<_> = match race.finish {
            Finish::Shrink => best.iter().filter(|c| !ends(c)).collect(),
            Finish::FullBounded => {
                best.iter().filter(|c| !ends(c)).chain(rest.by_ref().take(ended)).collect()
            }
            Finish::Full => {
                best.iter().filter_map(|c| if ends(&c) { rest.next() } else { Some(c) }).collect()
            }
        };
        let place = |&(path, row, choice): &(f32, u32, Choice)| (choice.token, row, path.to_bits());
        let (end, winners) = (outcome.places.len() + race.beam, winners.into_iter());
        outcome.places.extend(winners.map(|winner| Some(place(winner))));
        outcome.places.resize(end, None);
        let shrinks = race.finish == Finish::Shrink;
        outcome.widths.push(width - if shrinks { ended as u32 } else { 0 });
    }
    outcome
}

fn difference(
    found: &Outcome,
    expected: &Outcome,
    beam: usize,
    finish: Finish,
    step: usize,
) -> String {
    let places = || found.places.iter().zip(&expected.places);
    let first = places().position(|(a, b)| a != b);
    let (a, b) = first.map_or((None, None), |i| (found.places[i], expected.places[i]));
    format!("beam {beam}, {finish:?}, race {step}: place {first:?} has {a:?}, not {b:?}")
}
