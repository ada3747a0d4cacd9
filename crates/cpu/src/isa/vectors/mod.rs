//! Portable SIMD: sixteen numbers in the registers of an instruction set.
//!
//! Compilers vectorise most plain loops over arrays of sixteen (`lanes`). Where a loop has several such arrays as accumulators, as
//! attention does, they may spill them to memory; these types prevent that. A value of `Avx2` or `Avx512` exists only where the
//! processor has the instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod tests;

use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, array};

#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2, avx512::Avx512};

/// The operations on vectors of sixteen numbers.
pub(crate) trait Vectors: Copy {
    /// A vector of sixteen numbers.
    type V: Copy;
    /// Whether there is a fused multiply-add instruction.
    const FMA: bool;
    /// How many accumulators fit the registers beside the operands.
    const SUMS: usize;

    /// Broadcasts a number to all lanes.
    fn all(self, v: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn load_float16(self, from: &[Float16; LANES]) -> Self::V;
    /// Rounds to the nearest float16, ties to even.
    fn store_float16(self, v: Self::V, to: &mut [Float16; LANES]);
    /// Rounds numbers in the range of an int8 to integers and adds `added` to each byte. Bytes are stored in the order of four
    /// lanes of each vector, then the next four lanes of each.
    fn store_bytes(self, v: [Self::V; 4], added: u8, to: &mut [u8; 4 * LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// The lane-wise maximum.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
    fn multiply(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn multiply_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// The horizontal sum of each of sixteen vectors. Lanes are added in the order of [`add_up`](crate::isa::lanes::add_up).
    fn sums(self, of: &[[f32; LANES]; LANES]) -> Self::V;

    /// Swaps neighbouring groups of `run` lanes, which is 1, 2, 4 or 8.
    #[inline(always)]
    fn exchange(self, v: Self::V, run: usize) -> Self::V {
        let (mut lanes, mut exchanged) = ([0.0; LANES], [0.0; LANES]);
        self.store(v, &mut lanes);
        for i in 0..LANES {
            exchanged[i] = lanes[i ^ run];
        }
        self.load(&exchanged)
    }

    /// Transposes a matrix of sixteen by sixteen.
    #[inline(always)]
    fn transpose(self, rows: [&[f32; LANES]; LANES], to: &mut [[f32; LANES]; LANES]) {
        for (column, to) in to.iter_mut().enumerate() {
            *to = array(|row| rows[row][column]);
        }
    }

    /// Prefetches memory, where there is an instruction for it.
    #[inline(always)]
    fn prefetch<T>(_: &[T]) {}
}

/// Vectors in plain Rust, for every instruction set without a file here.
#[derive(Clone, Copy)]
pub(crate) struct Plain<const FMA: bool>;

impl<const FMA: bool> Vectors for Plain<FMA> {
    type V = [f32; LANES];
    const FMA: bool = FMA;
    const SUMS: usize = 4;

    #[inline(always)]
    fn all(self, v: f32) -> [f32; LANES] {
        [v; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> [f32; LANES] {
        *from
    }

    #[inline(always)]
    fn store(self, v: [f32; LANES], to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn load_float16(self, from: &[Float16; LANES]) -> [f32; LANES] {
        array(|i| from[i].widen())
    }

    #[inline(always)]
    fn store_float16(self, v: [f32; LANES], to: &mut [Float16; LANES]) {
        *to = array(|i| Float16::narrow(v[i]));
    }

    #[inline(always)]
    fn store_bytes(self, v: [[f32; LANES]; 4], added: u8, to: &mut [u8; 4 * LANES]) {
        for (quarter, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let byte =
                |i: usize| crate::isa::lanes::round_to_byte(v[i / 4][quarter * 4 + i % 4]) as u8;
            *to = array(|i| byte(i).wrapping_add(added));
        }
    }

    #[inline(always)]
    fn add(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn larger(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn multiply(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        array(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn multiply_add(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        array(|i| crate::isa::lanes::multiply_add::<FMA>(a[i], b[i], c[i]))
    }

    #[inline(always)]
    fn sums(self, of: &[[f32; LANES]; LANES]) -> [f32; LANES] {
        array(|i| crate::isa::lanes::add_up(of[i]))
    }
}

/// Conversions to float16 round to the nearest, ties to even.
#[cfg(target_arch = "x86_64")]
const NEAREST: i32 = std::arch::x86_64::_MM_FROUND_TO_NEAREST_INT;

/// Prefetches into L2. L1 is too small for what is read in between.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<T>(memory: &[T]) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    for line in (0..size_of_val(memory)).step_by(64) {
        let line = memory.as_ptr().cast::<i8>().wrapping_add(line);
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line) };
    }
}

/// Makes `fn NAME(isa, ARGS)` from a generic `BODY(vectors, ARGS)`, which is compiled for every level and dispatched at run time.
macro_rules! vector_kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) {
                // SAFETY: this function is compiled for, and called with, these instructions.
                $body(unsafe { $crate::isa::vectors::Avx2::new() }, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $type),*) {
                // SAFETY: as above.
                $body(unsafe { $crate::isa::vectors::Avx512::new() }, $($arg),*)
            }
            match isa.level() {
                // SAFETY: an `Isa` of this level exists only where the processor has AVX2, FMA and F16C.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 | $crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512
                | $crate::isa::Level::Avx512Vnni
                | $crate::isa::Level::Amx => {
                    // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                    unsafe { avx512($($arg),*) }
                }
                // Every aarch64 target has NEON and its fused multiply-add enabled.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Level::Neon | $crate::isa::Level::NeonDot => {
                    $body($crate::isa::vectors::Plain::<true>, $($arg),*)
                }
                _ => $body($crate::isa::vectors::Plain::<false>, $($arg),*),
            }
        }
    };
}

pub(crate) use vector_kernel;
