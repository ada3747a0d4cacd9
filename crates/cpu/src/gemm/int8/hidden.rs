//! Feed-forward activations rounded to float16 before they are quantised.

use crate::isa::float16::Float16;
use crate::isa::lanes::{LANES, largest};
use crate::isa::vectors::{Vectors, vector_kernel};

vector_kernel! {
    /// Rounds rows without negative numbers to float16. Rows that float16 does not [suit](Float16::suits) stay as they are.
    pub(crate) fn round_to_float16(width: usize, rows: &mut [f32]) = round_to_float16_body
}

#[inline(always)]
fn round_to_float16_body<I: Vectors>(isa: I, width: usize, rows: &mut [f32]) {
    for row in rows.chunks_exact_mut(width.max(1)) {
        let max = largest(row);
        if max >= Float16::OVERFLOW || !Float16::suits(Float16::narrow(max).widen()) {
            continue;
        }
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        for chunk in chunks {
            let mut rounded = [Float16::default(); LANES];
            isa.store_float16(isa.load(chunk), &mut rounded);
            isa.store(isa.load_float16(&rounded), chunk);
        }
        rest.iter_mut().for_each(|v| *v = Float16::narrow(*v).widen());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Level};

    #[test]
    fn rows_are_rounded_where_float16_suits_them() {
        let smallest = 2f32.powi(-10);
        let suited = [(smallest, true), (1.0, true), (65504.0, true), (65519.9, true)];
        let not = [(0.0, false), (1e-9, false), (smallest * 0.999, false), (65520.0, false)];
        for (max, rounds) in suited.into_iter().chain(not).chain([(f32::INFINITY, false)]) {
            // Two rows that are no whole vectors. Float16 suits the second in any case.
            let row = |max: f32| {
                (0..37).map(move |i| if i == 20 { max } else { max.min(1e30) * i as f32 / 41.0 })
            };
            let rows: Vec<f32> = row(max).chain(row(3.0)).collect();
            for isa in Level::ALL.into_iter().filter_map(Isa::new) {
                let mut got = rows.clone();
                round_to_float16(isa, 37, &mut got);
                for (i, (&v, &got)) in rows.iter().zip(&got).enumerate() {
                    let expected = if rounds || i >= 37 { Float16::narrow(v).widen() } else { v };
                    assert_eq!(got, expected, "{v} of a row up to {max}, {isa:?}");
                }
            }
        }
    }
}
