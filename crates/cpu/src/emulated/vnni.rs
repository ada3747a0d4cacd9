//! AVX-VNNI: `vpdpbusd` of 256-bit registers.

use super::tiles::Outcome;
use super::{Instruction, Operand, Prefix};

/// Where the kernel puts the lower halves of the registers (FXSAVE), the list of what it has saved, and
/// the upper halves (XSAVE, not compacted).
const LOWER: usize = 160;
const SAVED: usize = 512;
const UPPER: usize = 576;
/// The bit of upper halves in the list.
const AVX: u64 = 1 << 2;

/// # Safety
/// `saved` is the vector state of a signal handler on a system with AVX; what the instruction reads may be
/// read.
pub(super) unsafe fn execute(instruction: Instruction, saved: *mut u8) -> Outcome {
    if instruction.code.0 != Prefix::P66 {
        return Err("the emulator does not know it");
    }
    // SAFETY: by the caller's word.
    unsafe {
        let list: *mut u64 = saved.add(SAVED).cast();
        // Upper halves that are not saved are zero.
        if list.read() & AVX == 0 {
            saved.add(UPPER).write_bytes(0, 16 * 16);
            list.write(list.read() | AVX);
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

/// Adds to each sum of 32 bits four products of unsigned and signed bytes.
fn dot(sums: &mut [u8; 16], inputs: &[u8; 16], weights: &[u8; 16]) {
    let fours = inputs.as_chunks::<4>().0.iter().zip(weights.as_chunks::<4>().0);
    for (sum, (inputs, weights)) in sums.as_chunks_mut::<4>().0.iter_mut().zip(fours) {
        let products = inputs.iter().zip(weights).map(|(&x, &w)| i32::from(x) * i32::from(w as i8));
        *sum = i32::from_le_bytes(*sum).wrapping_add(products.sum()).to_le_bytes();
    }
}
