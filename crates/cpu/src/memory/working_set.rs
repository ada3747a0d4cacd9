//! The working set of a decoder step: what its products and its attention read.
//!
//! Software prefetch hides the latency of L3 and DRAM. Where all that a step reads is still in L2 from the step before, every prefetch
//! is one more look-up in L2, and L2 then delivers half as much. Each worker therefore counts the bytes of its steps, and prefetches
//! only if the last one read more than L2 holds. An encoder's bytes count for the step after it.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::isa::Isa;
use crate::technique::Technique;

thread_local! {
    static STEPS: Cell<Steps> = const { Cell::new(Steps { current: 0, last: usize::MAX }) };
}

/// Bytes that this worker has read in the step so far, and in the step before.
#[derive(Clone, Copy)]
struct Steps {
    current: usize,
    last: usize,
}

/// Counts bytes that a kernel reads.
pub(crate) fn count(bytes: usize) {
    let steps = STEPS.get();
    STEPS.set(Steps { current: steps.current.saturating_add(bytes), ..steps });
}

/// Ends a decoder step.
pub(crate) fn end_step() {
    STEPS.set(Steps { current: 0, last: STEPS.get().current });
}

/// `isa` without prefetch if the last step fits L2.
pub(crate) fn with_useful_prefetch(isa: Isa) -> Isa {
    if STEPS.get().last <= l2_bytes() { isa.without(&[Technique::Prefetch]) } else { isa }
}

/// Bytes of a core's L2 cache, 0 if unknown.
fn l2_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // Intel and AMD both have this leaf: kilobytes in the upper half of ECX.
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::__cpuid;
            const L2: u32 = 0x8000_0006;
            if __cpuid(0x8000_0000).eax >= L2 { (__cpuid(L2).ecx >> 16 << 10) as usize } else { 0 }
        }
        #[cfg(not(target_arch = "x86_64"))]
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fits_l2_is_not_prefetched() {
        let prefetches = || with_useful_prefetch(Isa::best()).uses(Technique::Prefetch);
        assert!(prefetches(), "nothing is known yet");
        let l2 = l2_bytes();
        for (bytes, fits) in [(l2, l2 > 0), (l2 + 1, false), (l2 / 2, l2 > 0)] {
            count(bytes / 2);
            count(bytes - bytes / 2);
            end_step();
            assert_eq!(prefetches(), !fits, "{bytes} of {l2}");
            count(usize::MAX);
            assert_eq!(prefetches(), !fits, "the step has not ended");
            end_step();
            assert!(prefetches(), "an encoder has come between");
        }
    }
}
