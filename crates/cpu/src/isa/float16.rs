//! float16: 5 exponent bits and 10 mantissa bits (IEEE 754 binary16).
//!
//! Stable Rust has no such type yet. Processors with AVX2 convert it to float32 and back by one instruction each (`vectors`);
//! this file does the same in plain Rust.

use bytemuck::{Pod, Zeroable};

/// A float16. Conversion saturates: a float32 beyond ±65504 becomes ±65504. NaN stays NaN.
#[derive(Debug, Default, Clone, Copy, PartialEq, Zeroable, Pod)]
#[repr(transparent)]
pub(crate) struct Float16(pub(super) u16);

impl Float16 {
    /// The largest finite float16.
    pub(crate) const MAX: f32 = 65504.0;

    /// Float32 values from here on are nearer to 65536 than to [`Float16::MAX`].
    pub(crate) const OVERFLOW: f32 = 65520.0;

    /// The smallest row maximum for which [`Float16::suits`] holds: 2⁻¹⁰. The int8 quantisation scale of such a row is 130
    /// times the spacing of subnormal float16 numbers.
    const SMALLEST_ROW_MAX: f32 = 16.0 * Float16::MIN_NORMAL;

    const SIGN: u32 = 0x8000;
    const NAN: u32 = 0x7e00;
    /// Difference of the exponent biases of float32 and float16, in float16 bits.
    const BIAS: u32 = 112 << 10;
    /// The same difference as a factor.
    const UNBIAS: f32 = f32::from_bits((127 + 112) << 23);
    /// Below this number the spacing is 2⁻²⁴, which is also the spacing of float32 from ½ to 1.
    const MIN_NORMAL: f32 = f32::from_bits((127 - 14) << 23);

    /// Whether a row may be rounded to float16 before it is quantised to int8. `max` is the row's maximum in float16: it must be
    /// finite, and large enough for rounding errors to stay below a hundredth of the quantisation scale.
    #[inline(always)]
    pub(crate) fn suits(max: f32) -> bool {
        (Float16::SMALLEST_ROW_MAX..=Float16::MAX).contains(&max)
    }

    /// Rounds to the nearest float16, ties to even.
    #[inline(always)]
    pub(crate) fn narrow(v: f32) -> Float16 {
        let sign = v.to_bits() >> 16 & Float16::SIGN;
        let size = v.abs();
        let size = if size > Float16::MAX { Float16::MAX } else { size };
        let bits = size.to_bits();
        let small = (size + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let normal =
            (bits.wrapping_add(0xfff + (bits >> 13 & 1)) >> 13).wrapping_sub(Float16::BIAS);
        let bits = if size < Float16::MIN_NORMAL { small } else { normal };
        let bits = if v.is_nan() { Float16::NAN } else { bits };
        Float16((sign | bits) as u16)
    }

    /// Converts to float32, exactly.
    #[inline(always)]
    pub(crate) fn widen(self) -> f32 {
        let bits = u32::from(self.0);
        let size = bits & !Float16::SIGN;
        let value = f32::from_bits(size << 13) * Float16::UNBIAS;
        let value = if size >= Float16::NAN { f32::NAN } else { value };
        f32::from_bits(value.to_bits() | (bits & Float16::SIGN) << 16)
    }
}
