//! Which hypotheses go on, found out by the device itself (`kernels/search.cu`).

use peregrine_model::Finish;
use peregrine_nn::{Ask, Choices, Contest};

use crate::Error;
use crate::device::Segment;
use crate::driver::Address;
use crate::kernel;
use crate::memory::NONE;

/// Records contests over answers, [`kernel::Asked::most`] a row: words and their scores.
pub(crate) fn record(
    segment: &mut Segment<'_>,
    contests: &[Contest],
    asks: &[Ask<'_>],
    asked: kernel::Asked,
    (words, scores): (Address, Address),
) -> Result<(), Error> {
    let (mut first_row, mut first_place) = (0, 0);
    let mut staged = Vec::with_capacity(contests.len());
    for contest in contests {
        staged.push(kernel::Contest {
            first_row,
            rows: contest.rows as usize,
            follows: contest.follows.unwrap_or(NONE) as usize,
            width: contest.width as usize,
            free: contest.free.into(),
            beam: contest.beam as usize,
            finish: match contest.finish {
                Finish::Shrink => 0,
                Finish::Full => 1,
                Finish::FullBounded => 2,
            },
            end: contest.end as usize,
            first_place,
        });
        first_row += contest.rows as usize;
        first_place += contest.beam as usize;
    }
    let paths: Vec<u32> = asks.iter().map(|ask| ask.path.to_bits()).collect();
    let (before, after) = segment.next_places(first_place)?;
    let race = kernel::Race {
        contests: segment.stage_all(&staged)?,
        paths: segment.stage(&paths)?,
        words,
        scores,
        before: before.lists(),
        after: after.lists(),
    };
    let parameters = kernel::Races { asked, race, count: segment.count(contests.len())? };
    segment.launch_rows(kernel::race, contests.len(), &parameters)
}

/// Answers that the host has found, as a race wants them.
pub(crate) fn stage(
    segment: &mut Segment<'_>,
    answer: &Choices,
    rows: usize,
    most: usize,
) -> Result<(Address, Address), Error> {
    let (mut words, mut scores) = (vec![NONE; rows * most], vec![0; rows * most]);
    for row in 0..rows {
        for (k, choice) in answer.of(row).iter().enumerate() {
            words[row * most + k] = choice.token;
            scores[row * most + k] = choice.score.to_bits();
        }
    }
    Ok((segment.stage(&words)?, segment.stage(&scores)?))
}
