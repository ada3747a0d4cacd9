//! Which hypotheses go on, found out by the device itself (`kernels/search.cu`).

use peregrine_model::Finish;
use peregrine_nn::{Ask, Choices, Race};

use crate::Error;
use crate::device::{Arguments, Segment};
use crate::driver::Address;
use crate::memory::NONE;
use crate::output::Asked;

/// Records a race over answers, `Asked::most` a row: words and their scores.
pub(crate) fn record(
    segment: &mut Segment<'_>,
    race: Race<'_>,
    asks: &[Ask<'_>],
    asked: Asked,
    (words, scores): (Address, Address),
) -> Result<(), Error> {
    let mut first_row = 0;
    let mut contests = Vec::with_capacity(5 * race.contests.len());
    for contest in race.contests {
        let follows = contest.follows.unwrap_or(NONE);
        contests.extend([first_row, contest.rows, follows, contest.width, contest.free.into()]);
        first_row += contest.rows;
    }
    let paths: Vec<u32> = asks.iter().map(|ask| ask.path.to_bits()).collect();
    let (before, after) = segment.next_places(race.contests.len(), race.beam)?;
    let finish = match race.finish {
        Finish::Shrink => 0,
        Finish::Full => 1,
        Finish::FullBounded => 2,
    };
    let arguments = asked
        .push(Arguments::default())
        .address(segment.stage(&contests)?)
        .address(segment.stage(&paths)?)
        .address(words)
        .address(scores);
    let arguments = after
        .push(before.push(arguments))
        .number(race.beam)
        .number(finish)
        .number(race.end as usize)
        .end()
        .address(segment.count(race.contests.len())?);
    segment.launch_rows("race", race.contests.len(), &arguments)
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
