//! An incremental hash, 64-bit FNV-1a (Fowler, Noll and Vo). It detects a text that was exchanged
//! by mistake; it is no protection against malice.

/// The hash of the bytes added so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        self.0 = bytes.iter().fold(self.0, |h, &byte| (h ^ u64::from(byte)).wrapping_mul(PRIME));
    }

    /// The hash value.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let hash = |text: &str| {
            let mut hash = Hash::default();
            hash.add(text.as_bytes());
            hash.value()
        };
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
