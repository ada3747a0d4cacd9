//! Device memory: where it comes from, and the pool in which a stream keeps what is free.

use rustc_hash::FxHashMap;

use super::Device;
use crate::Error;
use crate::driver::Address;

/// Free device memory, by size.
#[derive(Default)]
pub(super) struct Pool {
    free: FxHashMap<usize, Vec<Address>>,
}

impl Pool {
    pub(super) fn take(&mut self, bytes: usize) -> Option<Address> {
        self.free.get_mut(&bytes).and_then(Vec::pop)
    }

    pub(super) fn give_back(&mut self, address: Address, bytes: usize) {
        self.free.entry(bytes).or_default().push(address);
    }

    /// Empties the pool.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Address> + use<> {
        std::mem::take(&mut self.free).into_values().flatten()
    }
}

impl Device {
    /// Allocates device memory.
    pub(super) fn new_memory(&self, bytes: usize) -> Result<Address, Error> {
        let mut address = 0;
        // SAFETY: a place for an address.
        let code = unsafe { (self.driver.memory_allocate)(&mut address, bytes) };
        self.driver.check("cuMemAlloc", code).map(|()| address)
    }
}

/// Rounds a size up to those memory comes in: powers of two, and from 32 MiB on multiples of 2 MiB.
pub(super) fn rounded(bytes: usize) -> usize {
    const LARGE: usize = 32 << 20;
    match bytes {
        0..LARGE => bytes.max(256).next_power_of_two(),
        _ => bytes.next_multiple_of(2 << 20),
    }
}
