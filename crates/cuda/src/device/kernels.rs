//! The names of all kernels.

use crate::precision::GpuPrecision;

/// Kernels that need more dynamic shared memory than the 48 KiB a block gets by default.
pub(super) const LARGE_SHARED: [&str; 15] = [
    "product_few",
    "product_normed_512",
    "product_normed_1024",
    "product_thin",
    "product_slim",
    "product_middle",
    "product_tall",
    "product_large",
    "product_huge",
    "best_middle",
    "best_large",
    "best_huge",
    "merge",
    "attention_weights",
    "attention_weights_fp8",
];
/// Bytes of dynamic shared memory they may have, if the device has as much.
pub(super) const MOST_SHARED: usize = 192 << 10;

/// The names of the kernels of a precision.
pub(crate) fn kernels(precision: GpuPrecision) -> impl Iterator<Item = &'static str> {
    const ALL: [&str; 36] = [
        "embed",
        "embed_grown",
        "add_norm_512",
        "add_norm_2048",
        "add_norm_any",
        "add_rows",
        "element",
        "average",
        "ssru",
        "load_states",
        "move_rows",
        "clear_rows",
        "copy_words",
        "gather_sum",
        "recur",
        "modulate",
        "store",
        "attend",
        "attend_wide_1",
        "attend_wide_2",
        "attend_rows_1",
        "attend_rows_2",
        "attention_weights",
        "align",
        "pack",
        "best_narrow",
        "merge",
        "device_beam_search",
        "grow_lists",
        "begin_best",
        "add_bias",
        "softmax",
        "k_best",
        "fused_best",
        "shard_best",
        "best_of_shards",
    ];
    const PLAIN: [&str; 2] = ["product_16", "product_64"];
    const TENSOR: [&str; 13] = [
        "product_few",
        "product_normed_512",
        "product_normed_1024",
        "product_thin",
        "product_slim",
        "product_middle",
        "product_tall",
        "product_large",
        "product_huge",
        "best_few",
        "best_middle",
        "best_large",
        "best_huge",
    ];
    const TWO_BYTES: [&str; 21] = [
        "attend_head_32",
        "attend_head_64",
        "attend_head_128",
        "attend_few_32",
        "attend_few_64",
        "attend_few_128",
        "attend_tile_32",
        "attend_tile_64",
        "attend_tile_128",
        "store_fp8",
        "attend_wide_1_fp8",
        "attend_wide_2_fp8",
        "attend_rows_1_fp8",
        "attend_rows_2_fp8",
        "attend_few_32_fp8",
        "attend_few_64_fp8",
        "attend_few_128_fp8",
        "attend_tile_32_fp8",
        "attend_tile_64_fp8",
        "attend_tile_128_fp8",
        "attention_weights_fp8",
    ];
    let two_bytes = if precision.row_size() == 2 { &TWO_BYTES[..] } else { &[] };
    let products = if precision.uses_tensor_cores() { &TENSOR[..] } else { &PLAIN };
    let quantise: &[&str] = if precision.quantises() { &["quantise"] } else { &[] };
    ALL.iter().chain(two_bytes).chain(products).chain(quantise).copied()
}
