//! AMX: the size of a tile register, and whether this process may use the eight of them.

/// Rows of an AMX tile. Input buffers are padded to a multiple of it.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a row of an AMX tile.
#[cfg(target_arch = "x86_64")]
pub(crate) const TILE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
pub(crate) use detection::available;

#[cfg(target_arch = "x86_64")]
mod detection {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use std::sync::OnceLock;

    /// Whether the processor has AMX tiles for int8 and bfloat16 and the operating system permits this process to use them.
    /// The answer is computed once per process. Unit tests emulate AMX where it is missing.
    pub(crate) fn available() -> bool {
        static ANSWER: OnceLock<bool> = OnceLock::new();
        *ANSWER.get_or_init(|| {
            let real = processor_has_amx() && system_saves_tiles() && system_permits();
            #[cfg(all(test, target_os = "linux"))]
            let real = real || crate::emulated::installed();
            real
        })
    }

    /// Bits 22, 24 and 25 of `edx` in CPUID leaf 7: AMX-BF16, AMX-TILE, AMX-INT8.
    fn processor_has_amx() -> bool {
        const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
    }

    /// Bits 17 and 18 of XCR0: the operating system saves the shapes and contents of tiles.
    fn system_saves_tiles() -> bool {
        const BITS: u64 = 1 << 17 | 1 << 18;
        #[target_feature(enable = "xsave")]
        fn enabled() -> u64 {
            // SAFETY: register 0 exists wherever the instruction does.
            unsafe { _xgetbv(0) }
        }
        // SAFETY: the feature was detected just before.
        is_x86_feature_detected!("xsave") && unsafe { enabled() } & BITS == BITS
    }

    /// Linux requires a process to request AMX: `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`.
    #[cfg(target_os = "linux")]
    fn system_permits() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XTILEDATA: u64 = 18;
        let mut result = ARCH_PRCTL;
        // SAFETY: the call takes two numbers and touches no memory of this process; a system call may change `rcx` and `r11`.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn system_permits() -> bool {
        false
    }
}
