//! AVX-VNNI: `vpdpbusd` of 256-bit registers.

use super::tiles::Outcome;
use super::{Instruction, Operand, Prefix};

/// Offset of the lower 128 bits of the registers in the saved state (FXSAVE).
const LOWER: usize = 160;
/// Offset of `XSTATE_BV`, the mask of saved components.
const SAVED: usize = 512;
/// Offset of the upper 128 bits of the registers (XSAVE, not compacted).
const UPPER: usize = 576;
/// Bit of the upper 128 bits in the mask.
const AVX: u64 = 1 << 2;

/// Executes an instruction.
///
/// # Safety
/// `saved` is the vector state of a signal handler on a system with AVX; the memory that the instruction reads may be read.
pub(super) unsafe fn execute(instruction: Instruction, saved: *mut u8) -> Outcome {
    if instruction.code.0 != Prefix::P66 {
        return Err("it is not emulated");
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mask: *mut u64 = saved.add(SAVED).cast();
        // Upper bits that are not saved are zero.
        if mask.read() & AVX == 0 {
            saved.add(UPPER).write_bytes(0, 16 * 16);
            mask.write(mask.read() | AVX);
        }
        let halves = |register: usize| [LOWER, UPPER].map(|at| saved.add(at + 16 * register));
        let read = |register: usize| halves(register).map(|half| half.cast::<[u8; 16]>().read());
        let weights = match instruction.second {
            Operand::Register(register) => read(register),
            Operand::Memory { start, .. } => (start as *const [[u8; 16]; 2]).read(),
        };
        let (inputs, mut sums) = (read(instruction.third), read(instruction.first));
        for (sums, (inputs, weights)) in sums.iter_mut().zip(inputs.iter().zip(&weights)) {
            dot(sums, inputs, weights);
        }
        for (half, sums) in halves(instruction.first).into_iter().zip(sums) {
            half.cast::<[u8; 16]>().write(sums);
        }
    }
    Ok(())
}

/// The int8 dot product: adds to each int32 sum four products of unsigned and signed bytes.
fn dot(sums: &mut [u8; 16], inputs: &[u8; 16], weights: &[u8; 16]) {
    let fours = inputs.as_chunks::<4>().0.iter().zip(weights.as_chunks::<4>().0);
    for (sum, (inputs, weights)) in sums.as_chunks_mut::<4>().0.iter_mut().zip(fours) {
        let products = inputs.iter().zip(weights).map(|(&x, &w)| i32::from(x) * i32::from(w as i8));
        *sum = i32::from_le_bytes(*sum).wrapping_add(products.sum()).to_le_bytes();
    }
}
