//! AMX and AVX-VNNI instructions in software, for tests on processors without them.
//!
//! There each of them raises SIGILL. The handler decodes the interrupted instruction, executes it as Intel's manual defines it, and
//! continues behind it: tests run the same machine code as a processor with the instructions. An operation that a real processor
//! would fault on aborts the process with a message.

mod tiles;
mod vnni;

use std::cell::RefCell;
use std::io::Write;
use std::sync::OnceLock;

use tiles::TileFile;

/// Installs the emulator; returns whether that succeeded. It requires AVX-512 VNNI, which all AMX kernels use. Valgrind, whose signal
/// handlers get no registers, does not have it.
pub(crate) fn installed() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| is_x86_feature_detected!("avx512vnni") && install())
}

fn install() -> bool {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_illegal;
    // SAFETY: zero is a valid value of all fields, and the handler has the signature of SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()) == 0
    }
}

thread_local! {
    // No destructor and a constant initial value: safe to use in a signal handler.
    static TILES: RefCell<TileFile> = const { RefCell::new(TileFile::RELEASED) };
}

extern "C" fn on_illegal(
    signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: a handler with SA_SIGINFO gets a `ucontext_t` to which it has exclusive access.
    let state = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let registers = &mut state.gregs;
    let code = registers[libc::REG_RIP as usize] as *const u8;
    // SAFETY: the bytes of the instruction are read up to its end, and the processor has just read the same.
    let Some(instruction) = decode(|i| unsafe { *code.add(i) }, |r| register(registers, r)) else {
        // Not one of these instructions: it runs again and ends the process.
        // SAFETY: the default action always exists.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    // SAFETY: the addresses are those that the interrupted code accesses; `fpregs` is where the kernel has saved the vector registers.
    let outcome = unsafe {
        match instruction.wide {
            true => vnni::execute(instruction, state.fpregs.cast()),
            false => TILES.with_borrow_mut(|tiles| tiles.execute(instruction)),
        }
    };
    if let Err(why) = outcome {
        // Not a panic: it could not unwind through the interrupted code, and its text would be captured.
        let _ = writeln!(std::io::stderr(), "a processor would refuse {instruction:?}: {why}");
        std::process::abort();
    }
    registers[libc::REG_RIP as usize] += instruction.length as i64;
}

/// The general register with this number in an instruction.
fn register(registers: &[i64], number: u8) -> usize {
    use libc::*;
    const PLACES: [c_int; 16] = [
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
        REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    ];
    registers[PLACES[usize::from(number)] as usize] as usize
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Instruction {
    /// The implied prefix, and the opcode after 0F 38.
    code: (Prefix, u8),
    /// Whether operands are 256-bit registers; otherwise they are tiles.
    wide: bool,
    /// The register in the `reg` field.
    first: usize,
    /// The register or address in the `rm` field.
    second: Operand,
    /// The register in the `vvvv` field.
    third: usize,
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Prefix {
    None,
    P66,
    PF3,
    PF2,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operand {
    Register(usize),
    /// `stride` is the scaled index register: none if the instruction has no SIB byte.
    Memory {
        start: usize,
        stride: Option<usize>,
    },
}

/// Decodes an instruction in the encoding of AMX and AVX-VNNI (three-byte VEX, map 0F 38, W = 0).
fn decode(code: impl Fn(usize) -> u8, register: impl Fn(u8) -> usize) -> Option<Instruction> {
    let (head, extensions, last) = (code(0), !code(1), code(2));
    if head != 0xc4 || code(1) & 31 != 2 || last & 0x80 != 0 {
        return None;
    }
    let prefix = [Prefix::None, Prefix::P66, Prefix::PF3, Prefix::PF2][usize::from(last & 3)];
    let (opcode, modes) = (code(3), code(4));
    let (mode, first, low) = (modes >> 6, modes >> 3 & 7, modes & 7);
    let (r, x, b) = (extensions >> 7 & 1, extensions >> 6 & 1, extensions >> 5 & 1);
    let mut length = 5;
    let second = if mode == 3 {
        Operand::Register(usize::from(low | b << 3))
    } else {
        let mut stride = None;
        let mut base = low;
        if low == 4 {
            let (scale, index) = (code(5) >> 6, code(5) >> 3 & 7 | x << 3);
            // Number 4, the stack pointer, means no index.
            stride = Some(if index == 4 { 0 } else { register(index) << scale });
            base = code(5) & 7;
            length += 1;
        }
        if mode == 0 && base == 5 {
            return None; // No base, or relative to the instruction pointer: no kernel has that.
        }
        let byte = |i| code(length + i);
        let displacement = match mode {
            0 => 0,
            1 => i32::from(byte(0) as i8),
            _ => i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]),
        };
        length += [0, 1, 4][usize::from(mode)];
        let start = register(base | b << 3).wrapping_add_signed(displacement as isize);
        Operand::Memory { start, stride }
    };
    let (first, third) = (usize::from(first | r << 3), usize::from(!last >> 3 & 15));
    let wide = last & 4 != 0;
    let known = if wide { opcode == 0x50 } else { matches!(opcode, 0x49 | 0x4b | 0x5c | 0x5e) };
    known.then_some(Instruction { code: (prefix, opcode), wide, first, second, third, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings from GNU as (`objdump -d`).
    #[test]
    fn instructions_are_decoded() {
        let read = |code: &[u8]| {
            decode(|i| code[i], |register| 1000 * (usize::from(register) + 1))
                .expect("an instruction")
        };
        // tileloadd tmm4, [rsi + r9*1]
        let load = read(&[0xc4, 0xa2, 0x7b, 0x4b, 0x24, 0x0e]);
        assert_eq!(load.code, (Prefix::PF2, 0x4b));
        assert_eq!((load.first, load.length), (4, 6));
        assert_eq!(load.second, Operand::Memory { start: 7000, stride: Some(10000) });
        // tileloaddt1 tmm6, [rcx + r8*1]
        let load = read(&[0xc4, 0xa2, 0x79, 0x4b, 0x34, 0x01]);
        assert_eq!((load.code, load.first), ((Prefix::P66, 0x4b), 6));
        assert_eq!(load.second, Operand::Memory { start: 2000, stride: Some(9000) });
        // tilestored [rdi + rax*1 + 1024], tmm1
        let store = read(&[0xc4, 0xe2, 0x7a, 0x4b, 0x8c, 0x07, 0x00, 0x04, 0x00, 0x00]);
        assert_eq!((store.code, store.first, store.length), ((Prefix::PF3, 0x4b), 1, 10));
        assert_eq!(store.second, Operand::Memory { start: 9024, stride: Some(1000) });
        // tdpbusd tmm2, tmm5, tmm6
        let product = read(&[0xc4, 0xe2, 0x49, 0x5e, 0xd5]);
        assert_eq!((product.first, product.second, product.third), (2, Operand::Register(5), 6));
        // vpdpbusd ymm3, ymm12, ymmword ptr [rax + 32]
        let vnni = read(&[0xc4, 0xe2, 0x1d, 0x50, 0x58, 0x20]);
        assert_eq!((vnni.wide, vnni.first, vnni.third), (true, 3, 12));
        assert_eq!(vnni.second, Operand::Memory { start: 1032, stride: None });
        // vpmulld xmm0, xmm1, xmm2 is not emulated.
        assert_eq!(decode(|i| [0xc4, 0xe2, 0x71, 0x40, 0xc2][i], |_| 0), None);
    }
}
