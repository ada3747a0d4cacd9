//! Recurrent states: AAN (the average attention network), SSRU, and the cells of recurrent networks.

use std::sync::Arc;

use peregrine_model::CellKind;
use peregrine_nn::{Moves, Of, Source, Term, Terms};

use super::Cuda;
use crate::Error;
use crate::device::{Device, Segment};
use crate::kernel;
use crate::memory::{FOLLOWS, NONE, Rows};

/// The running mean of an AAN.
pub(super) fn average(
    device: &Arc<Device>,
    x: &Rows,
    moves: Moves<'_>,
    before: &[u32],
    state: &Rows,
    out: &mut Rows,
) -> Result<(), Error> {
    out.shape(device, x.count, x.width)?;
    device.record(|segment| {
        let parameters = kernel::Average {
            x: x.address(),
            out: out.address(),
            stride: out.stride(),
            state: state.address(),
            sources: sources(segment, moves)?,
            to: segment.stage(moves.to)?,
            before: segment.stage(before)?,
            width: x.width,
            count: segment.count(x.count)?,
        };
        segment.launch_columns(kernel::average, x.count, x.width, &parameters)
    })
}

/// A step of an SSRU.
pub(super) fn ssru(
    device: &Arc<Device>,
    candidate: &Rows,
    forget: &Rows,
    moves: Moves<'_>,
    state: &Rows,
    out: &mut Rows,
) -> Result<(), Error> {
    out.shape(device, candidate.count, candidate.width)?;
    device.record(|segment| {
        let parameters = kernel::Ssru {
            candidate: candidate.address(),
            forget: forget.address(),
            out: out.address(),
            stride: out.stride(),
            state: state.address(),
            sources: sources(segment, moves)?,
            to: segment.stage(moves.to)?,
            width: out.width,
            count: segment.count(out.count)?,
        };
        segment.launch_columns(kernel::ssru, out.count, out.width, &parameters)
    })
}

/// Copies the states that rows go on from.
pub(super) fn load(
    device: &Arc<Device>,
    state: &Rows,
    moves: Moves<'_>,
    out: &mut Rows,
) -> Result<(), Error> {
    let count = moves.from.len();
    out.shape(device, count, state.width)?;
    device.record(|segment| {
        let parameters = kernel::LoadStates {
            state: state.address(),
            stride: state.stride(),
            sources: sources(segment, moves)?,
            out: out.address(),
            width: state.width,
            count: segment.count(count)?,
        };
        segment.launch_columns(kernel::load_states, count, state.width, &parameters)
    })
}

/// A step of a recurrent cell.
pub(super) fn recur(
    device: &Device,
    kind: CellKind,
    terms: &Terms<'_, Cuda>,
    h: &Rows,
    c: Option<&Rows>,
) -> Result<(), Error> {
    let kind = match kind {
        CellKind::Gru | CellKind::Mgru => 0,
        CellKind::Lstm | CellKind::Mlstm => 1,
        CellKind::Tanh => 2,
        CellKind::Relu => 3,
        CellKind::Sru => 4,
        CellKind::Ssru => 5,
    };
    device.record(|segment| {
        let mut term = |term: &Option<Term<'_, Cuda>>| {
            let Some(term) = term else { return Ok((0, 0, 0, 0)) };
            let (at, one) = match term.of {
                Of::Same => (0, 0),
                Of::At(at) => (segment.stage(at)?, 0),
                Of::First => (0, 1),
            };
            Ok((term.rows.address(), term.rows.stride(), at, one))
        };
        let (x, x_stride, x_at, x_one) = term(&terms.x)?;
        let (s, s_stride, s_at, s_one) = term(&terms.s)?;
        let (raw, raw_stride, raw_at, _) = term(&terms.raw)?;
        let parameters = kernel::Recur {
            kind,
            h: h.address(),
            c: c.map_or(0, Rows::address),
            stride: h.stride(),
            d: h.width,
            x,
            x_stride,
            x_at,
            x_one,
            s,
            s_stride,
            s_at,
            s_one,
            raw,
            raw_stride,
            raw_at,
            count: segment.count(h.count)?,
        };
        segment.launch_columns(kernel::recur, h.count, h.width, &parameters)
    })
}

/// `h = a∘s`.
pub(super) fn modulate(
    device: &Device,
    a: &Term<'_, Cuda>,
    s: &Term<'_, Cuda>,
    h: &Rows,
) -> Result<(), Error> {
    device.record(|segment| {
        let mut at = |term: &Term<'_, Cuda>| match term.of {
            Of::At(at) => segment.stage(at),
            Of::Same | Of::First => Ok(0),
        };
        let (a_at, s_at) = (at(a)?, at(s)?);
        let parameters = kernel::Modulate {
            h: h.address(),
            stride: h.stride(),
            width: h.width,
            a: a.rows.address(),
            a_stride: a.rows.stride(),
            a_at,
            s: s.rows.address(),
            s_stride: s.rows.stride(),
            s_at,
            count: segment.count(h.count)?,
        };
        segment.launch_columns(kernel::modulate, h.count, h.width, &parameters)
    })
}

/// Stages where states are read from.
fn sources(segment: &mut Segment<'_>, moves: Moves<'_>) -> Result<kernel::Sources, Error> {
    let from = |source: &Source| match *source {
        Source::Zero => NONE,
        Source::State(row) => row,
        Source::Place(place) => FOLLOWS | place,
    };
    let from: Vec<u32> = moves.from.iter().map(from).collect();
    let (_, parents) = segment.followed();
    Ok(kernel::Sources {
        from: segment.stage(&from)?,
        before: segment.stage(moves.before)?,
        parents,
    })
}
