//! Which groups of four inputs fit 16 bits, alone or added up.

use std::arch::x86_64::*;

/// Most groups of an [`Order`].
pub(super) const BLOCK_GROUPS: usize = 128;

/// Rows of a tile of signed inputs.
pub(super) const TILE_ROWS: usize = 2;

/// Rows of inputs prepared for the kernels.
#[derive(Default)]
pub(super) struct Inputs {
    /// Signed inputs, with a row of zeros where the last tile of [`TILE_ROWS`] lacks one.
    pub(super) signed: Vec<u8>,
    /// The initial sum of each row.
    pub(super) starts: Vec<i32>,
    /// For each tile of rows, an order for each block of inputs.
    pub(super) orders: Vec<Order>,
}

/// A list of groups, with room for one write of eight behind the last.
type List = [u8; BLOCK_GROUPS + 8];

/// The groups of a block, by what they need.
#[derive(Clone, Copy)]
pub(super) struct Order {
    joint: List,
    single: List,
    large: List,
    counts: [u8; 3],
}

impl Order {
    const EMPTY: Order = Order {
        joint: [0; BLOCK_GROUPS + 8],
        single: [0; BLOCK_GROUPS + 8],
        large: [0; BLOCK_GROUPS + 8],
        counts: [0; 3],
    };

    /// The first group of every two, or four, that fit together.
    pub(super) fn joint(&self) -> &[u8] {
        &self.joint[..usize::from(self.counts[0])]
    }

    /// Groups that fit alone.
    pub(super) fn single(&self) -> &[u8] {
        &self.single[..usize::from(self.counts[1])]
    }

    /// Groups that do not fit.
    pub(super) fn large(&self) -> &[u8] {
        &self.large[..usize::from(self.counts[2])]
    }

    /// Appends groups from `first` on, those of three masks of eight.
    #[inline]
    fn extend(&mut self, first: u8, masks: [u8; 3]) {
        let lists = [&mut self.joint, &mut self.single, &mut self.large];
        for ((list, count), mask) in lists.into_iter().zip(&mut self.counts).zip(masks) {
            let (places, more) = PLACES[usize::from(mask)];
            let groups = u64::from_le_bytes(places) + u64::from_le_bytes([first; 8]);
            let at = usize::from(*count);
            list[at..at + 8].copy_from_slice(&groups.to_le_bytes());
            *count += more;
        }
    }
}

/// The places of the ones of every byte, lowest first, and their number.
static PLACES: [([u8; 8], u8); 256] = {
    let mut all = [([0; 8], 0); 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut places, mut count, mut bit) = ([0; 8], 0, 0);
        while bit < 8 {
            if mask >> bit & 1 == 1 {
                places[count] = bit;
                count += 1;
            }
            bit += 1;
        }
        all[mask] = (places, count as u8);
        mask += 1;
    }
    all
};

impl Inputs {
    /// Sets [`Inputs::signed`] to rows that are stored with an offset of 128.
    pub(super) fn make_signed(&mut self, bytes: &[u8]) {
        self.signed.clear();
        self.signed.extend(bytes.iter().map(|byte| byte ^ 128));
    }

    /// Prepares rows for signed products.
    #[target_feature(enable = "avx2")]
    pub(super) fn prepare_signed(&mut self, bytes: &[u8], stride: usize) {
        self.make_signed(bytes);
        self.signed.resize(bytes.len().next_multiple_of(TILE_ROWS * stride), 0);
        self.starts.clear();
        self.orders.clear();
        for rows in self.signed.chunks_exact(TILE_ROWS * stride) {
            let (one, other) = rows.split_at(stride);
            let mut starts = [-128 * sum_of_row(one), -128 * sum_of_row(other)];
            let blocks = one.chunks(BLOCK_GROUPS * 4).zip(other.chunks(BLOCK_GROUPS * 4));
            for rows in blocks.map(<[_; 2]>::from) {
                let order = order_signed(rows);
                for &group in order.large() {
                    for (start, row) in starts.iter_mut().zip(rows) {
                        // Large groups are multiplied without the offset, negative inputs with the complement.
                        let x = &row[usize::from(group) * 4..][..4];
                        *start += 128 * sum(x) + sum_of_negative(x);
                    }
                }
                self.orders.push(order);
            }
            self.starts.extend(starts);
        }
    }

    /// Prepares rows for products of their magnitudes, `N` groups together, in blocks of so many groups.
    #[target_feature(enable = "avx2")]
    pub(super) fn prepare_magnitudes<const N: usize>(
        &mut self,
        bytes: &[u8],
        stride: usize,
        block_groups: usize,
    ) {
        self.make_signed(bytes);
        self.orders.clear();
        for row in self.signed.chunks_exact(stride) {
            for block in row.chunks(block_groups * 4) {
                self.orders.push(order_magnitudes::<N>(block));
            }
        }
    }
}

/// The magnitudes of negative inputs, added up.
pub(super) fn sum_of_negative(x: &[u8]) -> i32 {
    x.iter().map(|&x| -i32::from((x as i8).min(0))).sum()
}

/// The sum of a row of signed inputs.
#[target_feature(enable = "avx2")]
fn sum_of_row(row: &[u8]) -> i32 {
    let mut sums = _mm256_setzero_si256();
    for x in row.chunks_exact(32) {
        // The instruction adds up unsigned bytes.
        let unsigned = _mm256_xor_si256(load(x), _mm256_set1_epi8(-128));
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(unsigned, _mm256_setzero_si256()));
    }
    let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let sum = _mm_cvtsi128_si64(sums) + _mm_extract_epi64::<1>(sums);
    sum as i32 - 128 * row.len() as i32
}

fn sum(x: &[u8]) -> i32 {
    x.iter().map(|&x| i32::from(x as i8)).sum()
}

/// Orders the groups of signed rows. Inputs of a lane fit if neither their positive nor their negative ones add up to more than
/// 128: times an unsigned byte, they stay within 16 bits.
#[target_feature(enable = "avx2")]
fn order_signed(rows: [&[u8]; TILE_ROWS]) -> Order {
    let (zero, limit) = (_mm256_setzero_si256(), _mm256_set1_epi16(128));
    let mut order = Order::EMPTY;
    for (eight, at) in (0..rows[0].len()).step_by(32).enumerate() {
        let (mut one, mut two) = (zero, zero);
        for row in rows {
            let x = load(&row[at..at + 32]);
            for x in [x, _mm256_sub_epi8(zero, x)] {
                let pairs = _mm256_maddubs_epi16(_mm256_max_epi8(x, zero), _mm256_set1_epi8(1));
                let both = _mm256_add_epi16(pairs, _mm256_shuffle_epi32::<0b10_11_00_01>(pairs));
                one = _mm256_max_epi16(one, pairs);
                two = _mm256_max_epi16(two, both);
            }
        }
        let fits = groups_within(one, limit);
        let joint = groups_within(two, limit);
        let masks = [joint & 0b0101_0101, fits & !joint, !fits & !joint];
        order.extend(8 * eight as u8, masks);
    }
    order
}

/// Orders the groups of a row. `N` groups fit together if the magnitudes of each lane add up to at most 255: times a signed byte,
/// they stay within 16 bits. A group always fits alone.
#[target_feature(enable = "avx2")]
fn order_magnitudes<const N: usize>(row: &[u8]) -> Order {
    let mut order = Order::EMPTY;
    for (eight, at) in (0..row.len()).step_by(32).enumerate() {
        let magnitudes = _mm256_abs_epi8(load(&row[at..at + 32]));
        let mut sums = _mm256_maddubs_epi16(magnitudes, _mm256_set1_epi8(1));
        sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
        let mut first = 0b0101_0101;
        if N == 4 {
            sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
            first = 0b0001_0001;
        }
        let joint = groups_within(sums, _mm256_set1_epi16(255));
        order.extend(8 * eight as u8, [joint & first, !joint, 0]);
    }
    order
}

/// A mask of the groups whose two lanes are at most `limit`.
#[target_feature(enable = "avx2")]
#[inline]
fn groups_within(lanes: __m256i, limit: __m256i) -> u8 {
    let above = _mm256_cmpgt_epi16(lanes, limit);
    let none = _mm256_cmpeq_epi32(above, _mm256_setzero_si256());
    _mm256_movemask_ps(_mm256_castsi256_ps(none)) as u8
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(x: &[u8]) -> __m256i {
    assert_eq!(x.len(), 32);
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}
