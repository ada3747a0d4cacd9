//! The parameters of kernels.
//!
//! Every parameter of a `__global__` function and every field of a structure in `kernels/` is declared here under its
//! own name, and a kernel can only be launched with the parameters declared for it. Tests compare the declarations
//! with the sources, and their sizes with the compiled PTX.
//!
//! | sources | here |
//! |---|---|
//! | a pointer | [`Address`] |
//! | `u32` | `usize`, and an error where the number is too large |
//! | `u64`, `float` | `u64`, `f32` |
//! | a structure | a type of that name |

use std::marker::PhantomData;

use crate::Error;
use crate::driver::Address;

#[cfg(test)]
mod tests;

/// A kernel that takes a `P`.
pub(crate) struct Kernel<P> {
    pub(crate) name: &'static str,
    /// Whether tensor maps of its operands may follow, for TMA: `MAPS` in the sources.
    pub(crate) maps: bool,
    takes: PhantomData<fn(&P)>,
}

impl<P> Clone for Kernel<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Kernel<P> {}

impl<P> Kernel<P> {
    const fn new(name: &'static str, maps: bool) -> Kernel<P> {
        Kernel { name, maps, takes: PhantomData }
    }
}

/// A parameter of a kernel.
pub(crate) trait Value {
    /// The alignment in bytes.
    const ALIGNMENT: usize;
    fn pack(&self, to: &mut Packer<'_>);
}

/// Packs values with the layout of C, from `start` on.
pub(crate) struct Packer<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    too_large: Option<usize>,
}

impl Packer<'_> {
    fn align(&mut self, alignment: usize) {
        let used = self.bytes.len() - self.start;
        self.bytes.resize(self.start + used.next_multiple_of(alignment), 0);
    }

    fn push<const N: usize>(&mut self, value: [u8; N]) {
        self.align(N);
        self.bytes.extend(value);
    }
}

/// Appends a value to packed ones.
pub(crate) fn append(value: &impl Value, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let start = bytes.len();
    let mut packer = Packer { bytes, start, too_large: None };
    value.pack(&mut packer);
    match packer.too_large {
        None => Ok(()),
        Some(number) => {
            bytes.truncate(start);
            as_u32(number).map(drop)
        }
    }
}

/// A number as a kernel's `u32`.
pub(crate) fn as_u32(number: usize) -> Result<u32, Error> {
    let too_large = |_| Error::Unsupported(format!("a size of {number} (at most {})", u32::MAX));
    u32::try_from(number).map_err(too_large)
}

impl Value for u64 {
    const ALIGNMENT: usize = 8;
    fn pack(&self, to: &mut Packer<'_>) {
        to.push(self.to_le_bytes());
    }
}

impl Value for usize {
    const ALIGNMENT: usize = 4;
    fn pack(&self, to: &mut Packer<'_>) {
        let number = u32::try_from(*self).unwrap_or_else(|_| {
            to.too_large = Some(*self);
            0
        });
        to.push(number.to_le_bytes());
    }
}

impl Value for f32 {
    const ALIGNMENT: usize = 4;
    fn pack(&self, to: &mut Packer<'_>) {
        to.push(self.to_le_bytes());
    }
}

const fn most(alignments: &[usize]) -> usize {
    let (mut most, mut i) = (1, 0);
    while i < alignments.len() {
        if alignments[i] > most {
            most = alignments[i];
        }
        i += 1;
    }
    most
}

/// A declaration, to be compared with the sources.
#[cfg(test)]
struct Declared {
    /// A structure, or the kernels that take these parameters.
    names: &'static [&'static str],
    /// Names and types.
    fields: &'static [(&'static str, &'static str)],
    maps: bool,
    bytes: fn() -> usize,
}

/// A type with these fields. A structure ends on its alignment (`true`), parameters end where they end.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? } $is_structure:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)+
        }

        impl Value for $name {
            const ALIGNMENT: usize = most(&[$(<$type as Value>::ALIGNMENT),+]);
            fn pack(&self, to: &mut Packer<'_>) {
                to.align(Self::ALIGNMENT);
                $(self.$field.pack(to);)+
                if $is_structure {
                    to.align(Self::ALIGNMENT);
                }
            }
        }

        #[cfg(test)]
        impl $name {
            const FIELDS: &[(&str, &str)] = &[$((stringify!($field), stringify!($type))),+];

            fn bytes() -> usize {
                let mut bytes = Vec::new();
                append(&$name::default(), &mut bytes).expect("zeros");
                bytes.len()
            }
        }
    };
}

/// Structures of the sources.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($fields:tt)+ })+) => {
        $(fields!($(#[$doc])* $name { $($fields)+ } true);)+

        #[cfg(test)]
        const STRUCTURES: &[Declared] = &[$(Declared {
            names: &[stringify!($name)],
            fields: $name::FIELDS,
            maps: false,
            bytes: $name::bytes,
        }),+];
    };
}

/// Whether tensor maps follow a structure.
const ALONE: bool = false;
const MAPS: bool = true;

/// Kernels that take one structure, and perhaps tensor maps.
macro_rules! kernels_of_a_structure {
    ($($type:ident $parameter:ident $maps:ident: $($kernel:ident),+;)+) => {
        $($(
            #[expect(non_upper_case_globals, reason = "as in the sources")]
            pub(crate) const $kernel: Kernel<$type> = Kernel::new(stringify!($kernel), $maps);
        )+)+

        #[cfg(test)]
        const OF_A_STRUCTURE: &[Declared] = &[$(Declared {
            names: &[$(stringify!($kernel)),+],
            fields: &[(stringify!($parameter), stringify!($type))],
            maps: $maps,
            bytes: $type::bytes,
        }),+];
    };
}

/// Kernels that take several parameters, and the type of those.
macro_rules! kernels_of_parameters {
    ($($name:ident: $($kernel:ident),+ { $($fields:tt)+ })+) => {
        $(
            fields!($name { $($fields)+ } false);
            $(
                #[expect(non_upper_case_globals, reason = "as in the sources")]
                pub(crate) const $kernel: Kernel<$name> = Kernel::new(stringify!($kernel), ALONE);
            )+
        )+

        #[cfg(test)]
        const OF_PARAMETERS: &[Declared] = &[$(Declared {
            names: &[$(stringify!($kernel)),+],
            fields: $name::FIELDS,
            maps: false,
            bytes: $name::bytes,
        }),+];
    };
}

structures! {
    /// Words to look up.
    Embedding {
        out: Address,
        stride: usize,
        table: Address,
        words: usize,
        width: usize,
        ids: Address,
        latest: Address,
        positions: Address,
        at: Address,
        scale: f32,
        count: Address,
    }
    Norm { scale: Address, bias: Address, epsilon: f32, centred: usize }
    /// Where recurrent states are read from.
    Sources { from: Address, before: Address, parents: Address }
    Attend {
        queries: Address,
        keys: Address,
        values: Address,
        at: Address,
        spans: Address,
        lists: Address,
        out: Address,
        count: Address,
        query_stride: usize,
        stride: usize,
        width: usize,
        size: usize,
        team: usize,
        heads: usize,
        out_stride: usize,
        early: usize,
        parties: Address,
        rows: Address,
    }
    Product {
        x: Address,
        w: Address,
        x_scale: Address,
        w_scale: Address,
        bias: Address,
        input: Address,
        out: Address,
        words: Address,
        count: Address,
        x_stride: usize,
        w_stride: usize,
        bytes: usize,
        columns: usize,
        out_stride: usize,
        activation: usize,
        exact_out: usize,
    }
    /// What every row asks.
    Asked {
        counts: Address,
        forced: Address,
        banned_spans: Address,
        banned: Address,
        probabilities: Address,
        most: usize,
    }
    /// The findings of tiles of the output layer.
    Found {
        scores: Address,
        words: Address,
        maxima: Address,
        sums: Address,
        forced: Address,
        tiles: usize,
    }
    /// Rows that share their shortlist, and one tile of its words; read from memory.
    Task { first_row: usize, rows: usize, tile: usize, columns: usize, words: Address }
    WideBest { p: Product, asked: Asked, found: Found }
    Logits { values: Address, bias: Address, stride: usize, columns: usize, count: Address }
    /// The places of a query: the hypotheses that go on.
    Places { words: Address, parents: Address, paths: Address, widths: Address }
    /// The beam of a sentence; read from memory.
    DeviceBeam {
        first_row: usize,
        rows: usize,
        follows: usize,
        width: usize,
        free: usize,
        beam: usize,
        finish: usize,
        end: usize,
        first_place: usize,
    }
    BeamSearch {
        device_beams: Address,
        paths: Address,
        words: Address,
        scores: Address,
        before: Places,
        after: Places,
    }
    /// Lists of positions that grow.
    Growth {
        lists: Address,
        room: usize,
        before: Address,
        before_room: usize,
        from: Address,
        parents: Address,
        positions: Address,
        own: Address,
        first: Address,
    }
}

kernels_of_a_structure! {
    Embedding e ALONE: embed;
    Attend a ALONE: attend, attend_head_32, attend_head_64, attend_head_128, attend_wide_1, attend_wide_2,
        attend_rows_1, attend_rows_2, attend_few_32, attend_few_64, attend_few_128, attend_tile_32, attend_tile_64,
        attend_tile_128, attend_wide_1_fp8, attend_wide_2_fp8, attend_rows_1_fp8, attend_rows_2_fp8,
        attend_few_32_fp8, attend_few_64_fp8, attend_few_128_fp8, attend_tile_32_fp8, attend_tile_64_fp8,
        attend_tile_128_fp8;
    Product p ALONE: product_16, product_64, product_few;
    Product p MAPS: product_thin, product_slim, product_middle, product_tall, product_large, product_huge;
    WideBest b MAPS: best_middle, best_large, best_huge;
    Logits l ALONE: add_bias;
}

kernels_of_parameters! {
    EmbedGrown: embed_grown { e: Embedding, g: Growth }
    AddNorm: add_norm_512, add_norm_2048, add_norm_any {
        x: Address,
        input: Address,
        out: Address,
        stride: usize,
        norm: Norm,
        width: usize,
        count: Address,
    }
    AddRows: add_rows {
        x: Address,
        input: Address,
        out: Address,
        stride: usize,
        width: usize,
        count: Address,
    }
    Element: element {
        kind: usize,
        y: Address,
        p: Address,
        q: Address,
        r: Address,
        a: f32,
        b: f32,
        stride: usize,
        width: usize,
        count: Address,
    }
    Average: average {
        x: Address,
        out: Address,
        stride: usize,
        state: Address,
        sources: Sources,
        to: Address,
        before: Address,
        width: usize,
        count: Address,
    }
    Ssru: ssru {
        candidate: Address,
        forget: Address,
        out: Address,
        stride: usize,
        state: Address,
        sources: Sources,
        to: Address,
        width: usize,
        count: Address,
    }
    LoadStates: load_states {
        state: Address,
        stride: usize,
        sources: Sources,
        out: Address,
        width: usize,
        count: Address,
    }
    MoveRows: move_rows {
        from: Address,
        from_stride: usize,
        from_at: Address,
        to: Address,
        to_stride: usize,
        to_at: Address,
        first: usize,
        width: usize,
        count: Address,
    }
    ClearRows: clear_rows { rows: Address, stride: usize, first: Address, count: Address }
    CopyWords: copy_words { from: Address, to: Address, words: u64 }
    GatherSum: gather_sum {
        rows: Address,
        stride: usize,
        spans: Address,
        list: Address,
        weights: Address,
        out: Address,
        out_stride: usize,
        width: usize,
        count: Address,
    }
    Recur: recur {
        kind: usize,
        h: Address,
        c: Address,
        stride: usize,
        d: usize,
        x: Address,
        x_stride: usize,
        x_at: Address,
        x_one: usize,
        s: Address,
        s_stride: usize,
        s_at: Address,
        s_one: usize,
        raw: Address,
        raw_stride: usize,
        raw_at: Address,
        count: Address,
    }
    Modulate: modulate {
        h: Address,
        stride: usize,
        width: usize,
        a: Address,
        a_stride: usize,
        a_at: Address,
        s: Address,
        s_stride: usize,
        s_at: Address,
        count: Address,
    }
    Store: store, store_fp8 {
        x: Address,
        x_stride: usize,
        key_column: usize,
        at: Address,
        keys: Address,
        values: Address,
        stride: usize,
        width: usize,
        count: Address,
    }
    AttentionWeights: attention_weights, attention_weights_fp8 {
        queries: Address,
        query_stride: usize,
        keys: Address,
        stride: usize,
        spans: Address,
        lists: Address,
        starts: Address,
        size: usize,
        team: usize,
        heads: usize,
        scratch: Address,
        out: Address,
        count: Address,
    }
    Align: align {
        queries: Address,
        query_stride: usize,
        keys: Address,
        stride: usize,
        spans: Address,
        lists: Address,
        energy: Address,
        width: usize,
        weights: Address,
        count: Address,
    }
    NormedProduct: product_normed_512, product_normed_1024 {
        p: Product,
        raw: Address,
        norm: Norm,
        width: usize,
    }
    Pack: pack {
        w: Address,
        out: Address,
        stride: usize,
        scales: Address,
        k: usize,
        count: Address,
    }
    Quantise: quantise {
        x: Address,
        stride: usize,
        out: Address,
        out_stride: usize,
        scales: Address,
        width: usize,
        count: Address,
    }
    NarrowBest: best_few, best_narrow { p: Product, asked: Asked, found: Found, tasks: Address }
    Merge: merge {
        asked: Asked,
        found: Found,
        tile_counts: Address,
        answer_words: Address,
        answer_scores: Address,
        latest: Address,
        latest_scores: Address,
        count: Address,
    }
    BeginBest: begin_best { forced: Address, count: Address }
    Softmax: softmax { l: Logits, asked: Asked, probabilities: Address }
    KBest: k_best {
        l: Logits,
        asked: Asked,
        probabilities: Address,
        words: Address,
        scores: Address,
        latest: Address,
    }
    FusedBest: fused_best {
        l: Logits,
        asked: Asked,
        words: Address,
        scores: Address,
        latest: Address,
    }
    ShardBest: shard_best { l: Logits, asked: Asked, best_of: Address }
    BestOfShards: best_of_shards {
        l: Logits,
        asked: Asked,
        best_of: Address,
        shards: usize,
        words: Address,
        scores: Address,
        latest: Address,
    }
    DeviceBeamSearch: device_beam_search { asked: Asked, search: BeamSearch, count: Address }
    GrowLists: grow_lists { g: Growth, count: Address }
}
