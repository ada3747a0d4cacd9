//! Scattered output rows against products with packed panels.

use proptest::prelude::*;

use super::scattered::{OutputRows, PickedRows, multiply};
use crate::gemm::int8::QuantisedInt8;
use crate::gemm::int8::tests::{numbers, pack, run};
use crate::isa::Isa;

proptest! {
    /// Outputs of scattered rows have the same bits as those of packed panels.
    #[test]
    fn scattered_outputs_have_the_bits_of_panels(
        inputs in 1usize..300,
        rows in 0usize..4,
        words in prop::collection::vec(0u32..70, 0..60),
        seed in 1u64..1000,
    ) {
        let isa = Isa::best();
        if OutputRows::is_fast(isa) {
            let (packed, _) = pack(numbers(70 * inputs, seed), &numbers(70, 2), inputs);
            let x = numbers(rows * inputs, seed + 1);
            let expected = run(isa, &x, &packed.select(&words));
            let mut quantised = QuantisedInt8::default();
            quantised.fill(isa, &x, &packed);
            let table = OutputRows::new(&packed);
            let picked = PickedRows::new(&packed, &words);
            let mut out = vec![0.0; rows * words.len()];
            multiply(isa, (&quantised, 0..rows), &table, &picked, 0..words.len(), &mut out);
            prop_assert_eq!(out, expected);
        }
    }
}
