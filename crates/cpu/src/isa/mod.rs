//! The instruction sets of this processor, detected once.
//!
//! An [`Isa`] is only made by detection, so a value of it proves that the instructions exist: kernels take it by value and check
//! nothing. It also holds the techniques they use.

pub(crate) mod amx;
pub(crate) mod bfloat16;
pub(crate) mod float16;
pub(crate) mod lanes;
pub(crate) mod vectors;

use crate::technique::{Technique, Techniques};

/// The instruction sets with kernels, slower ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the architecture, in plain Rust.
    Portable,
    /// NEON, which every 64-bit ARM processor has.
    Neon,
    /// NEON with the int8 dot products of ARMv8.2.
    NeonDot,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI, for processors with VNNI and without AVX-512.
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with VNNI.
    Avx512Vnni,
    /// AVX-512 and VNNI with AMX tiles for int8 and bfloat16.
    Amx,
}

impl Level {
    /// All levels, slower ones first.
    pub const ALL: [Level; 8] = [
        Level::Portable,
        Level::Neon,
        Level::NeonDot,
        Level::Avx2,
        Level::AvxVnni,
        Level::Avx512,
        Level::Avx512Vnni,
        Level::Amx,
    ];

    /// The name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Neon => "neon",
            Level::NeonDot => "neon-dot",
            Level::Avx2 => "avx2",
            Level::AvxVnni => "avx-vnni",
            Level::Avx512 => "avx512",
            Level::Avx512Vnni => "avx512-vnni",
            Level::Amx => "amx",
        }
    }
}

/// Proof that the processor has the instructions of a [`Level`], and the techniques to use with them.
#[derive(Debug, Clone, Copy)]
pub struct Isa {
    level: Level,
    techniques: Techniques,
}

impl Isa {
    /// The baseline of the architecture.
    const PORTABLE: Isa = Isa { level: Level::Portable, techniques: Techniques::ALL };

    /// The fastest level of this processor, with all techniques.
    pub fn best() -> Isa {
        Level::ALL.into_iter().rev().find_map(Isa::new).unwrap_or(Isa::PORTABLE)
    }

    /// A certain level, if the processor has it, with all techniques.
    pub fn new(level: Level) -> Option<Isa> {
        available(level).then_some(Isa { level, ..Isa::PORTABLE })
    }

    /// The same level without some techniques.
    pub fn without(self, techniques: &[Technique]) -> Isa {
        Isa { techniques: self.techniques.without(techniques), ..self }
    }

    /// The level that this value proves.
    pub fn level(self) -> Level {
        self.level
    }

    /// Whether a technique is used.
    #[inline(always)]
    pub fn uses(self, technique: Technique) -> bool {
        self.techniques.has(technique)
    }

    /// All techniques that are used.
    pub(crate) fn techniques(self) -> Techniques {
        self.techniques
    }
}

#[cfg(target_arch = "x86_64")]
fn available(level: Level) -> bool {
    match level {
        Level::Portable => true,
        Level::Neon | Level::NeonDot => false,
        Level::Avx2 => {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
        }
        Level::Avx512 => {
            available(Level::Avx2)
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("popcnt")
        }
        Level::AvxVnni => {
            let there = is_x86_feature_detected!("avxvnni");
            // Unit tests emulate AVX-VNNI where it is missing, as they do AMX.
            #[cfg(all(test, target_os = "linux"))]
            let there = there || crate::emulated::installed();
            available(Level::Avx2) && there
        }
        Level::Avx512Vnni => available(Level::Avx512) && is_x86_feature_detected!("avx512vnni"),
        Level::Amx => available(Level::Avx512Vnni) && amx::available(),
    }
}

#[cfg(target_arch = "aarch64")]
fn available(level: Level) -> bool {
    match level {
        Level::Portable | Level::Neon => true,
        Level::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
        _ => false,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn available(level: Level) -> bool {
    level == Level::Portable
}

/// Makes `fn NAME(isa, ARGS)` from a generic `BODY::<FMA>(ARGS)`: the body, written once in plain Rust, is compiled for every level
/// and dispatched by that of `isa`. `FMA` is whether a fused multiply-add is one instruction there; it rounds once in any case.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                $body::<true>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $type),*) {
                $body::<true>($($arg),*)
            }
            match isa.level() {
                // SAFETY: an `Isa` of this level exists only where the processor has AVX2 and FMA.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 | $crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512
                | $crate::isa::Level::Avx512Vnni
                | $crate::isa::Level::Amx => {
                    // SAFETY: an `Isa` of these levels exists only where the processor has AVX-512.
                    unsafe { avx512($($arg),*) }
                }
                // Every aarch64 target has NEON and its fused multiply-add enabled.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Level::Neon | $crate::isa::Level::NeonDot => $body::<true>($($arg),*),
                _ => $body::<false>($($arg),*),
            }
        }
    };
}

/// Calls a function with every level of this processor and checks that all return the same.
#[cfg(test)]
pub(crate) fn same_everywhere<T: PartialEq + std::fmt::Debug>(what: &str, f: impl Fn(Isa) -> T) {
    let expected = f(Isa::PORTABLE);
    for isa in Level::ALL.into_iter().filter_map(Isa::new) {
        assert_eq!(f(isa), expected, "{what}, {}", isa.level().name());
    }
}

pub(crate) use kernel;
