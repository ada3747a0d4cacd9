//! The positions of the KV cache that rows of a decoder read of their own past. With run-ahead only the device knows
//! which row another goes on from, so it puts the lists together (`kernels/search.cu`); the host knows their lengths.

use std::sync::Arc;

use peregrine_nn::{Origin, PastExtension, Reads};

use crate::Error;
use crate::device::{Device, Grown, bucket};
use crate::driver::Address;
use crate::kernel;
use crate::memory::{Buffer, FOLLOWS, NONE};

/// The positions that rows read of their own past. The lists of two steps take turns (double buffering); each row's
/// list has the same room.
#[derive(Default)]
pub struct Past {
    /// The places of the lists, without their contents.
    reads: Reads,
    now: PastLists,
    before: PastLists,
}

#[derive(Default)]
struct PastLists {
    buffer: Option<Buffer>,
    room: usize,
}

impl AsRef<Reads> for Past {
    fn as_ref(&self) -> &Reads {
        &self.reads
    }
}

impl Past {
    /// Records the kernel that puts the lists of the next step together.
    pub(crate) fn grow(
        &mut self,
        device: &Arc<Device>,
        step: PastExtension<'_>,
    ) -> Result<(), Error> {
        /// Lists of many lengths get the same room, so that steps are recorded alike.
        const LEAST_ROOM: usize = 64;
        std::mem::swap(&mut self.now, &mut self.before);
        let longest = step.positions.iter().max().map_or(0, |&position| position as usize + 1);
        let room = longest.next_power_of_two().max(LEAST_ROOM);
        let bytes = 4 * bucket(step.own.len()) * room;
        if self.now.buffer.as_ref().is_none_or(|buffer| buffer.bytes < bytes) {
            self.now.buffer = None;
            self.now.buffer = Some(Buffer::new(device, bytes)?);
        }
        self.now.room = room;
        self.reads.clear();
        for (row, &position) in step.positions.iter().enumerate() {
            self.reads.push_elsewhere(row * room..row * room + position as usize + 1);
        }
        let from = |from: &Origin| match *from {
            Origin::Start(_) => NONE,
            Origin::Row { row, .. } => row,
            Origin::Place(place) => FOLLOWS | place,
        };
        let from: Vec<u32> = step.from.iter().map(from).collect();
        let first: Vec<u32> = step.first.iter().map(|first| first.unwrap_or(NONE)).collect();
        let last = |row: usize| if step.positions[row] == 0 { first[row] } else { step.own[row] };
        let last = (0..first.len()).map(last).collect();
        let identity = self.reads.identity();
        let lists = self.now.address();
        device.record(|segment| {
            let g = kernel::Growth {
                lists,
                room,
                before: self.before.address(),
                before_room: self.before.room,
                from: segment.stage(&from)?,
                parents: segment.followed().1,
                positions: segment.stage(step.positions)?,
                own: segment.stage(step.own)?,
                first: segment.stage(&first)?,
            };
            match segment.take_embedded(from.len()) {
                Some((grid, e)) => {
                    let parameters = kernel::EmbedGrown { e, g };
                    segment.launch_warps(kernel::embed_grown, grid, &parameters)?;
                }
                None => {
                    let parameters = kernel::GrowLists { g, count: segment.count(from.len())? };
                    segment.launch_rows(kernel::grow_lists, from.len(), &parameters)?;
                }
            }
            segment.just_grown(Grown { identity, lists, last });
            Ok(())
        })
    }
}

impl PastLists {
    fn address(&self) -> Address {
        self.buffer.as_ref().map_or(0, |buffer| buffer.address)
    }
}
