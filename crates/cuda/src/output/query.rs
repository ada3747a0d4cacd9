//! Queries of the output layer: how they are staged, and how their answers are read.

use std::sync::Arc;

use peregrine_nn::{Choice, Choices, RowRequest, Scoring, TopKQuery};

use super::layer::{Output, OutputLayer, Selection};
use crate::Error;
use crate::device::{Answer, Device, Segment, Sent};
use crate::kernel;
use crate::memory::{NONE, Rows};

/// The rows a query is about, and the layer that answers it.
#[derive(Clone, Copy)]
pub(crate) struct OutputCall<'a> {
    pub(crate) device: &'a Arc<Device>,
    /// The layer for all rows that it can answer.
    pub(crate) layer: OutputLayer,
    pub(crate) x: &'a Rows,
    pub(crate) output: &'a Output,
    /// The shortlist of each row.
    pub(crate) selections: &'a [Option<&'a Selection>],
}

/// A query whose answer may not have been computed yet.
#[derive(Default)]
pub struct Pending {
    pub(super) sent: Option<Sent>,
    /// The rows and the choices a row that the answer has room for.
    room: (usize, usize),
    /// The number of choices that each row asks for.
    counts: Vec<usize>,
    /// The answer, if the host has found it.
    pub(super) found: Choices,
}

impl Pending {
    /// Sends what was recorded; `answer` has room for so many rows and choices a row.
    pub(crate) fn send(
        &mut self,
        device: &Device,
        answer: Answer,
        room: (usize, usize),
        query: TopKQuery<'_>,
    ) -> Result<(), Error> {
        self.sent = Some(device.send(answer)?);
        self.room = room;
        self.counts.clear();
        let count =
            |request: &RowRequest<'_>| if request.forced.is_some() { 1 } else { request.count };
        self.counts.extend(query.requests.iter().map(count));
        Ok(())
    }

    /// Waits for the answer.
    pub(crate) fn answer(&mut self, device: &Device, answer: &mut Choices) -> Result<(), Error> {
        answer.clear();
        let Some(sent) = self.sent.take() else {
            std::mem::swap(&mut self.found, answer);
            return Ok(());
        };
        let (rows, most) = self.room;
        device.read(sent, 2 * rows * most, |words| {
            let (tokens, scores) = words.split_at(rows * most);
            for (row, &count) in self.counts.iter().enumerate() {
                let at = row * most..row * most + count;
                let choices = tokens[at.clone()].iter().zip(&scores[at]);
                let found = choices.filter(|&(&token, _)| token != NONE);
                answer.push(
                    found.map(|(&token, &score)| Choice { token, score: f32::from_bits(score) }),
                );
            }
        })
    }
}

/// Rounds the k of a top-k search up. Few different values remain, so that steps are recorded alike; they are close to
/// k, since every tile finds as many.
pub(super) fn room_for(choices: usize) -> usize {
    match choices {
        0..=8 => choices.max(1).next_power_of_two(),
        _ => choices.next_multiple_of(4),
    }
}

/// Stages a query, with room for `most` choices a row.
pub(crate) fn asked(
    segment: &mut Segment<'_>,
    query: TopKQuery<'_>,
    most: usize,
) -> Result<kernel::Asked, Error> {
    let requests = query.requests;
    let counts: Vec<u32> = requests.iter().map(|request| request.count as u32).collect();
    let forced: Vec<u32> = requests.iter().map(|request| request.forced.unwrap_or(NONE)).collect();
    let probabilities = |request: &RowRequest<'_>| match request.scoring {
        Scoring::Logit => 0,
        Scoring::LogProbability => 1,
        Scoring::LogProbabilityOfAllowed => 2,
    };
    let probabilities: Vec<u32> = requests.iter().map(probabilities).collect();
    let (mut banned, mut spans) = (Vec::new(), Vec::with_capacity(2 * requests.len()));
    let mut last: &[u32] = &[];
    for request in requests {
        // Usually all rows ban the same few words: they share one list.
        if request.banned != last {
            banned.extend_from_slice(request.banned);
            last = request.banned;
        }
        let end = banned.len();
        spans.extend([(end - last.len()) as u32, end as u32]);
    }
    Ok(kernel::Asked {
        counts: segment.stage(&counts)?,
        forced: segment.stage(&forced)?,
        banned_spans: segment.stage(&spans)?,
        banned: segment.stage(&banned)?,
        probabilities: segment.stage(&probabilities)?,
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_little_room_to_spare() {
        let rooms: Vec<usize> = [0, 1, 3, 5, 8, 9, 12, 18, 2000].map(room_for).to_vec();
        assert_eq!(rooms, [1, 1, 4, 8, 8, 12, 12, 20, 2000]);
    }
}
