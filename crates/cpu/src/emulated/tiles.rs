//! AMX tiles and their instructions, after "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2.

use super::{Instruction, Operand, Prefix};

/// Most rows of a tile in palette 1.
const ROWS: usize = 16;
/// Most bytes of a tile's row in palette 1.
const BYTES: usize = 64;

#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    row_bytes: usize,
    /// Contents; zero outside the shape, as in the processor.
    data: [[u8; BYTES]; ROWS],
}

/// The tile registers of a thread.
pub(super) struct TileFile {
    configured: bool,
    tiles: [Tile; 8],
}

pub(super) type Outcome = Result<(), &'static str>;

impl TileFile {
    pub(super) const RELEASED: TileFile = TileFile {
        configured: false,
        tiles: [Tile { rows: 0, row_bytes: 0, data: [[0; BYTES]; ROWS] }; 8],
    };

    /// Executes an instruction.
    ///
    /// # Safety
    /// The memory that the instruction accesses may be accessed.
    pub(super) unsafe fn execute(&mut self, instruction: Instruction) -> Outcome {
        let Instruction { code, first, second, third, .. } = instruction;
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (code, second) {
                ((Prefix::None, 0x49), Operand::Memory { start, .. }) => {
                    self.configure(&*(start as *const [u8; 64]))
                }
                ((Prefix::None, 0x49), Operand::Register(0)) if first == 0 => {
                    *self = TileFile::RELEASED;
                    Ok(())
                }
                ((Prefix::PF2, 0x49), Operand::Register(0)) => {
                    self.shaped(first)?.data = [[0; BYTES]; ROWS];
                    Ok(())
                }
                // `P66` is `tileloaddt1`, a hint that L1 need not keep the bytes.
                (
                    (Prefix::PF2 | Prefix::P66, 0x4b),
                    Operand::Memory { start, stride: Some(stride) },
                ) => self.load(first, start, stride),
                ((Prefix::PF3, 0x4b), Operand::Memory { start, stride: Some(stride) }) => {
                    self.store(first, start, stride)
                }
                ((Prefix::P66, 0x5e), Operand::Register(second)) => {
                    self.multiply(first, second, third, add_bytes)
                }
                ((Prefix::PF3, 0x5c), Operand::Register(second)) => {
                    self.multiply(first, second, third, add_bfloat16)
                }
                _ => Err("it is not emulated"),
            }
        }
    }

    /// `ldtilecfg`: a byte each for the palette and the start row, 14 reserved bytes, 16 widths of two bytes, 16 heights. Palette 1
    /// has eight tiles.
    fn configure(&mut self, bytes: &[u8; 64]) -> Outcome {
        if bytes[0] != 1 || bytes[1..16].iter().any(|&b| b != 0) {
            return Err("palette 1 from row 0, and zeros in what is reserved");
        }
        if bytes[32..48].iter().chain(&bytes[56..]).any(|&b| b != 0) {
            return Err("there are eight tiles");
        }
        let mut tiles = TileFile::RELEASED.tiles;
        for (i, tile) in tiles.iter_mut().enumerate() {
            tile.rows = usize::from(bytes[48 + i]);
            tile.row_bytes =
                usize::from(u16::from_le_bytes([bytes[16 + 2 * i], bytes[17 + 2 * i]]));
            if tile.rows > ROWS || tile.row_bytes > BYTES {
                return Err("a tile has 16 rows of 64 bytes at most");
            }
            if (tile.rows == 0) != (tile.row_bytes == 0) {
                return Err("a tile has both rows and columns, or neither");
            }
        }
        *self = TileFile { configured: true, tiles };
        Ok(())
    }

    /// A configured tile.
    fn shaped(&mut self, tile: usize) -> Result<&mut Tile, &'static str> {
        if !self.configured {
            return Err("tiles have no shapes");
        }
        match self.tiles.get_mut(tile) {
            Some(tile) if tile.rows > 0 => Ok(tile),
            _ => Err("a tile without a shape"),
        }
    }

    /// # Safety
    /// As many rows and bytes as the tile has can be read.
    unsafe fn load(&mut self, tile: usize, start: usize, stride: usize) -> Outcome {
        let tile = self.shaped(tile)?;
        tile.data = [[0; BYTES]; ROWS];
        for (row, to) in tile.data[..tile.rows].iter_mut().enumerate() {
            let from = start.wrapping_add(row.wrapping_mul(stride)) as *const u8;
            // SAFETY: guaranteed by the caller; `to` is as long as a row can be.
            unsafe { from.copy_to(to.as_mut_ptr(), tile.row_bytes) };
        }
        Ok(())
    }

    /// # Safety
    /// As many rows and bytes as the tile has can be written.
    unsafe fn store(&mut self, tile: usize, start: usize, stride: usize) -> Outcome {
        let tile = self.shaped(tile)?;
        for (row, from) in tile.data[..tile.rows].iter().enumerate() {
            let to = start.wrapping_add(row.wrapping_mul(stride)) as *mut u8;
            // SAFETY: guaranteed by the caller; `from` is as long as a row can be.
            unsafe { from.as_ptr().copy_to(to, tile.row_bytes) };
        }
        Ok(())
    }

    /// Replaces each four bytes of the tile `sums` by `add` of them, of a row of `left` and of a column of `right`, also in units of
    /// four bytes.
    fn multiply(
        &mut self,
        sums: usize,
        left: usize,
        right: usize,
        add: fn(Four, &mut dyn Iterator<Item = (Four, Four)>) -> Four,
    ) -> Outcome {
        if sums == left || sums == right || left == right {
            return Err("three different tiles");
        }
        let (a, b) = (*self.shaped(left)?, *self.shaped(right)?);
        let c = self.shaped(sums)?;
        let fours = [a.row_bytes, b.row_bytes, c.row_bytes].iter().all(|n| n % 4 == 0);
        if !fours || c.rows != a.rows || c.row_bytes != b.row_bytes || a.row_bytes / 4 != b.rows {
            return Err("shapes that do not fit each other");
        }
        for (sums, a) in c.data[..c.rows].iter_mut().zip(&a.data) {
            let a = &a.as_chunks::<4>().0[..b.rows];
            for (n, sum) in sums.as_chunks_mut().0[..c.row_bytes / 4].iter_mut().enumerate() {
                let column = b.data.iter().map(|row| row.as_chunks::<4>().0[n]);
                *sum = add(*sum, &mut a.iter().copied().zip(column));
            }
        }
        Ok(())
    }
}

/// Four bytes of a tile.
type Four = [u8; 4];

/// `tdpbusd`: unsigned bytes times signed bytes.
fn add_bytes(sum: Four, pairs: &mut dyn Iterator<Item = (Four, Four)>) -> Four {
    let mut sum = i32::from_le_bytes(sum);
    for (a, b) in pairs {
        for (a, b) in a.into_iter().zip(b) {
            sum = sum.wrapping_add(i32::from(a) * i32::from(b as i8));
        }
    }
    sum.to_le_bytes()
}

/// `tdpbf16ps`: pairs of bfloat16. Those at even and those at odd indices are summed separately from zero by fused multiply-adds;
/// subnormal inputs, sums and results are flushed to zero.
fn add_bfloat16(sum: Four, pairs: &mut dyn Iterator<Item = (Four, Four)>) -> Four {
    let bfloat16 = |low: u8, high: u8| flushed(f32::from_le_bytes([0, 0, low, high]));
    let (mut even, mut odd) = (0.0, 0.0);
    for (a, b) in pairs {
        even = flushed(bfloat16(a[0], a[1]).mul_add(bfloat16(b[0], b[1]), even));
        odd = flushed(bfloat16(a[2], a[3]).mul_add(bfloat16(b[2], b[3]), odd));
    }
    let both = flushed(even + odd);
    flushed(flushed(f32::from_le_bytes(sum)) + both).to_le_bytes()
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(rows: [u8; 8], row_bytes: [u16; 8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        bytes[48..56].copy_from_slice(&rows);
        for (to, width) in bytes[16..32].as_chunks_mut().0.iter_mut().zip(row_bytes) {
            *to = width.to_le_bytes();
        }
        bytes
    }

    fn configured(rows: [u8; 8], row_bytes: [u16; 8]) -> TileFile {
        let mut file = TileFile::RELEASED;
        file.configure(&shapes(rows, row_bytes)).unwrap();
        file
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let mut file = TileFile::RELEASED;
        assert!(file.shaped(0).is_err());
        let mut two_palettes = shapes([1; 8], [4; 8]);
        two_palettes[0] = 2;
        assert!(file.configure(&two_palettes).is_err());
        let mut nine_tiles = shapes([1; 8], [4; 8]);
        nine_tiles[56] = 1;
        assert!(file.configure(&nine_tiles).is_err());
        for (rows, row_bytes) in [(17, 64), (16, 65), (0, 64), (16, 0)] {
            assert!(file.configure(&shapes([rows; 8], [row_bytes; 8])).is_err());
        }
        let mut file = configured([2, 2, 3, 3, 0, 0, 0, 0], [8, 12, 8, 8, 0, 0, 0, 0]);
        assert_eq!(file.multiply(0, 1, 2, add_bytes), Ok(()));
        for (sums, left, right) in [(0, 1, 1), (1, 0, 2), (2, 1, 3), (0, 2, 3), (0, 1, 4)] {
            assert!(file.multiply(sums, left, right, add_bytes).is_err(), "{sums} {left} {right}");
        }
    }

    #[test]
    fn products_are_the_manuals() {
        let mut file = configured([1, 1, 2, 0, 0, 0, 0, 0], [4, 8, 4, 0, 0, 0, 0, 0]);
        file.tiles[0].data[0][..4].copy_from_slice(&5i32.to_le_bytes());
        file.tiles[1].data[0][..8].copy_from_slice(&[255, 1, 2, 3, 4, 0, 0, 128]);
        file.tiles[2].data[0][..4].copy_from_slice(&[128, 1, 1, 255]);
        file.tiles[2].data[1][..4].copy_from_slice(&[2, 0, 0, 1]);
        file.multiply(0, 1, 2, add_bytes).unwrap();
        let sum = 5 - 255 * 128 + 1 + 2 - 3 + 8 + 128;
        assert_eq!(file.tiles[0].data[0][..4], i32::to_le_bytes(sum));
        let pair = |x: f32, y: f32| {
            let (x, y) = (x.to_le_bytes(), y.to_le_bytes());
            [x[2], x[3], y[2], y[3]]
        };
        let pairs = [(pair(2.0, 3.0), pair(0.5, -1.0)), (pair(1e-40, 1.0), pair(1e30, 4.0))];
        let sum = add_bfloat16(10f32.to_le_bytes(), &mut pairs.into_iter());
        assert_eq!(f32::from_le_bytes(sum), 10.0 + 1.0 - 3.0 + 4.0);
    }
}
