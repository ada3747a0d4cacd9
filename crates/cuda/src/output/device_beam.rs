//! Device-side beam search: the device chooses the hypotheses that go on, without the host (`kernels/search.cu`).

use peregrine_model::Finish;
use peregrine_nn::{Choices, DeviceBeam, RowRequest};

use crate::Error;
use crate::device::Segment;
use crate::driver::Address;
use crate::kernel;
use crate::memory::NONE;

/// Records the search of beams over the answers, words and scores, [`kernel::Asked::most`] a row.
pub(crate) fn record(
    segment: &mut Segment<'_>,
    device_beams: &[DeviceBeam],
    requests: &[RowRequest<'_>],
    asked: kernel::Asked,
    (words, scores): (Address, Address),
) -> Result<(), Error> {
    let (mut first_row, mut first_place) = (0, 0);
    let mut staged = Vec::with_capacity(device_beams.len());
    for device_beam in device_beams {
        staged.push(kernel::DeviceBeam {
            first_row,
            rows: device_beam.rows as usize,
            follows: device_beam.follows.unwrap_or(NONE) as usize,
            width: device_beam.width as usize,
            free: device_beam.free.into(),
            beam: device_beam.beam as usize,
            finish: match device_beam.finish {
                Finish::Shrink => 0,
                Finish::Full => 1,
                Finish::FullBounded => 2,
            },
            end: device_beam.end as usize,
            first_place,
        });
        first_row += device_beam.rows as usize;
        first_place += device_beam.beam as usize;
    }
    let paths: Vec<u32> = requests.iter().map(|request| request.path.to_bits()).collect();
    let (before, after) = segment.next_places(first_place)?;
    let search = kernel::BeamSearch {
        device_beams: segment.stage_all(&staged)?,
        paths: segment.stage(&paths)?,
        words,
        scores,
        before: before.lists(),
        after: after.lists(),
    };
    let count = segment.count(device_beams.len())?;
    let parameters = kernel::DeviceBeamSearch { asked, search, count };
    segment.launch_rows(kernel::device_beam_search, device_beams.len(), &parameters)
}

/// Stages answers that the host has found, as the search of beams reads them.
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
