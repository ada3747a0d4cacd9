//! bfloat16: the sign, the exponent and the upper 7 mantissa bits of a float32.

/// Rounds to the nearest bfloat16, ties to even, and returns its bits. NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_bfloat16(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let bits = if v.is_nan() { bits | 0x0040_0000 } else { rounded };
    (bits >> 16) as u16
}
