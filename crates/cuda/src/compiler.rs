//! Kernels from source to machine code: compiled by NVRTC when a device is first used, and cached on disk. Without
//! NVRTC the precompiled PTX ([`portable`]) serves.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

use crate::Error;
use crate::driver::{functions, open_first};
use crate::portable;
use crate::precision::GpuPrecision;

functions!(Nvrtc {
    version = "nvrtcVersion" (*mut c_int, *mut c_int);
    create = "nvrtcCreateProgram" (*mut *mut c_void, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    compile = "nvrtcCompileProgram" (*mut c_void, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize" (*mut c_void, *mut usize);
    log = "nvrtcGetProgramLog" (*mut c_void, *mut c_char);
    code_size = "nvrtcGetCUBINSize" (*mut c_void, *mut usize);
    code = "nvrtcGetCUBIN" (*mut c_void, *mut c_char);
    ptx_size = "nvrtcGetPTXSize" (*mut c_void, *mut usize);
    ptx = "nvrtcGetPTX" (*mut c_void, *mut c_char);
    destroy = "nvrtcDestroyProgram" (*mut *mut c_void);
});

/// The source of all kernels, one translation unit.
pub(crate) const SOURCE: &str = concat!(
    include_str!("../kernels/precision.cu"),
    include_str!("../kernels/rows.cu"),
    include_str!("../kernels/attention.cu"),
    include_str!("../kernels/attention_heads.cu"),
    include_str!("../kernels/attention_tiles.cu"),
    include_str!("../kernels/product.cu"),
    include_str!("../kernels/tiles.cu"),
    include_str!("../kernels/output.cu"),
    include_str!("../kernels/search.cu"),
    include_str!("../kernels/logits.cu"),
);

/// The names under which NVRTC is looked for: that in `PEREGRINE_NVRTC`, or the usual ones.
pub(crate) fn nvrtc_names() -> Vec<String> {
    if let Some(name) = std::env::var("PEREGRINE_NVRTC").ok().filter(|name| !name.is_empty()) {
        return vec![name];
    }
    let mut names: Vec<String> =
        ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(str::to_owned).to_vec();
    let homes = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(|name| std::env::var(name).ok());
    for home in homes.chain(["/usr/local/cuda".to_owned()]) {
        names.push(format!("{home}/lib64/libnvrtc.so"));
    }
    names
}

impl Nvrtc {
    /// Loads the compiler.
    pub(crate) fn open() -> Result<Nvrtc, Error> {
        let names = nvrtc_names();
        let missing =
            |reason| Error::Compiler(format!("looked for {}: {reason}", names.join(", ")));
        let library = open_first(&names).map_err(missing)?;
        Nvrtc::from_library(library).map_err(|e| missing(e.to_string()))
    }

    /// Its version.
    pub(crate) fn version_text(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two places for numbers.
        unsafe { (self.version)(&mut major, &mut minor) };
        format!("{major}.{minor}")
    }

    /// Compiles the kernels: to machine code, or to PTX if `flags` name a virtual architecture. An error holds the
    /// compiler's log.
    pub(crate) fn build(&self, flags: &[String]) -> Result<Vec<u8>, Error> {
        let (size_of, get) = match flags.iter().any(|flag| flag.contains("compute_")) {
            true => (self.ptx_size, self.ptx),
            false => (self.code_size, self.code),
        };
        let text = |s: &str| CString::new(s).map_err(|e| Error::Compiler(e.to_string()));
        let source = text(SOURCE)?;
        let flags = flags.iter().map(|flag| text(flag)).collect::<Result<Vec<_>, _>>()?;
        let flags: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: all texts end in zero and outlive the calls; buffers are as long as the library
        // says they must be; the program is destroyed once.
        unsafe {
            let name = c"peregrine.cu".as_ptr();
            let made = (self.create)(&mut program, source.as_ptr(), name, 0, none, none);
            if made != 0 {
                return Err(Error::Compiler(format!("nvrtcCreateProgram gave {made}")));
            }
            let result = (self.compile)(program, flags.len() as c_int, flags.as_ptr());
            let built = match result {
                0 => text_of(program, size_of, get),
                _ => text_of(program, self.log_size, self.log).and_then(|log| {
                    let log = String::from_utf8_lossy(&log);
                    Err(Error::Compiler(log.trim_end_matches('\0').to_owned()))
                }),
            };
            (self.destroy)(&mut program);
            built
        }
    }
}

type Program = *mut c_void;

/// One of the compiler's results for a program: machine code, PTX or the log.
///
/// # Safety
/// The program exists, and `get` writes as many bytes as `size_of` says.
unsafe fn text_of(
    program: Program,
    size_of: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
) -> Result<Vec<u8>, Error> {
    let failed = |code| Error::Compiler(format!("NVRTC gave no result: error {code}"));
    let mut size = 0;
    // SAFETY: a place for a number.
    let code = unsafe { size_of(program, &mut size) };
    if code != 0 || size == 0 {
        return Err(failed(code));
    }
    let mut bytes = vec![0u8; size];
    // SAFETY: the caller's promise.
    match unsafe { get(program, bytes.as_mut_ptr().cast()) } {
        0 => Ok(bytes),
        code => Err(failed(code)),
    }
}

/// Kernels a driver can load.
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    /// The compute capability they were compiled for, which may be lower than the device's.
    pub(crate) capability: (i32, i32),
}

/// What kernels are compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Compute capability, major and minor.
    pub(crate) capability: (i32, i32),
    pub(crate) driver: i32,
    pub(crate) precision: GpuPrecision,
}

impl Target {
    fn flags(&self) -> Vec<String> {
        let (major, minor) = self.capability;
        // `wgmma` needs the architecture-specific target sm_90a.
        let own = if major == 9 { "a" } else { "" };
        let mut flags = vec![format!("--gpu-architecture=sm_{major}{minor}{own}")];
        flags.extend(self.precision.flags());
        flags
    }

    /// The key of the disk cache: everything the code depends on.
    fn key(&self, nvrtc: &str) -> String {
        let source = checksum(SOURCE.as_bytes());
        format!("{source:016x} {} nvrtc {nvrtc} driver {}", self.flags().join(" "), self.driver)
    }
}

/// The kernels: compiled for the device if there is NVRTC, else the precompiled PTX.
pub(crate) fn code(target: &Target) -> Result<Code, Error> {
    match Nvrtc::open() {
        Ok(nvrtc) => {
            Ok(Code { bytes: machine_code(target, &nvrtc)?, capability: target.capability })
        }
        Err(_) => Ok(Code {
            bytes: portable::kernels(target.precision)?,
            capability: target.precision.needs(),
        }),
    }
}

/// The kernels' machine code: from the disk cache, or compiled and stored there.
fn machine_code(target: &Target, nvrtc: &Nvrtc) -> Result<Vec<u8>, Error> {
    let key = target.key(&nvrtc.version_text());
    let path = cache_folder().map(|folder| folder.join(file_name(&key)));
    if let Some(code) =
        path.as_ref().and_then(|p| std::fs::read(p).ok()).and_then(|f| unwrap(&f, &key))
    {
        return Ok(code);
    }
    let code = nvrtc.build(&target.flags())?;
    // Without a cache the next start takes some seconds longer.
    if let Some(path) = path {
        let temporary = path.with_extension(format!("{}.part", std::process::id()));
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            std::fs::write(&temporary, wrap(&code, &key))?;
            std::fs::rename(&temporary, &path)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }
    Ok(code)
}

/// The folder of compiled kernels: `PEREGRINE_CACHE`, or the user's cache folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    folder("PEREGRINE_CACHE").or_else(|| {
        let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(caches.join("peregrine"))
    })
}

fn file_name(key: &str) -> String {
    format!("kernels-{:016x}.bin", checksum(key.as_bytes()))
}

/// A cached file: the key and its length, a checksum, the code.
fn wrap(code: &[u8], key: &str) -> Vec<u8> {
    let mut file = Vec::with_capacity(code.len() + key.len() + 16);
    file.extend((key.len() as u64).to_le_bytes());
    file.extend(key.as_bytes());
    file.extend(checksum(code).to_le_bytes());
    file.extend(code);
    file
}

/// The code of a cached file, if it is whole and was compiled for `key`.
fn unwrap(file: &[u8], key: &str) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let (length, rest) = file.split_at_checked(8)?;
    let (stored, rest) = rest.split_at_checked(usize::try_from(number(length)?).ok()?)?;
    let (sum, code) = rest.split_at_checked(8)?;
    (stored == key.as_bytes() && number(sum)? == checksum(code)).then(|| code.to_vec())
}

/// FNV-1a, 64 bits.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target { capability: (9, 0), driver: 13000, precision: GpuPrecision::Float16 }
    }

    #[test]
    fn a_cached_file_comes_back_only_whole_and_for_its_key() {
        let file = wrap(b"machine code", "key");
        assert_eq!(unwrap(&file, "key").as_deref(), Some(&b"machine code"[..]));
        assert_eq!(unwrap(&file, "other"), None);
        for length in 0..file.len() {
            assert_eq!(unwrap(&file[..length], "key"), None);
        }
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 0x10;
            assert_eq!(unwrap(&damaged, "key"), None, "byte {place}");
        }
    }

    #[test]
    fn the_key_names_all_the_code_depends_on() {
        let key = |target: &Target, nvrtc: &str| target.key(nvrtc);
        let one = key(&target(), "13.0");
        assert_ne!(one, key(&target(), "12.8"));
        assert_ne!(one, key(&Target { driver: 12080, ..target() }, "13.0"));
        assert_ne!(one, key(&Target { capability: (8, 9), ..target() }, "13.0"));
        assert_ne!(one, key(&Target { precision: GpuPrecision::Int8, ..target() }, "13.0"));
        assert!(target().flags()[0].ends_with("sm_90a"));
    }

    /// A compiler that compiles without an error and returns no code.
    #[test]
    fn a_compiler_that_gives_nothing_is_an_error() {
        unsafe extern "C" fn version(_: *mut c_int, _: *mut c_int) -> c_int {
            0
        }
        unsafe extern "C" fn create(
            _: *mut Program,
            _: *const c_char,
            _: *const c_char,
            _: c_int,
            _: *const *const c_char,
            _: *const *const c_char,
        ) -> c_int {
            0
        }
        unsafe extern "C" fn compile(_: Program, _: c_int, _: *const *const c_char) -> c_int {
            0
        }
        unsafe extern "C" fn no_size(_: Program, _: *mut usize) -> c_int {
            4
        }
        unsafe extern "C" fn no_text(_: Program, _: *mut c_char) -> c_int {
            4
        }
        unsafe extern "C" fn destroy(_: *mut Program) -> c_int {
            0
        }
        let nvrtc = Nvrtc {
            version,
            create,
            compile,
            log_size: no_size,
            log: no_text,
            code_size: no_size,
            code: no_text,
            ptx_size: no_size,
            ptx: no_text,
            destroy,
            _library: None,
        };
        let error = nvrtc.build(&target().flags()).expect_err("no code").to_string();
        assert!(error.contains("error 4"), "{error}");
    }

    /// With NVRTC every precision must compile, with or without a GPU.
    #[test]
    fn kernels_compile() {
        let Ok(nvrtc) = Nvrtc::open() else {
            eprintln!("skipped: no NVRTC");
            return;
        };
        for precision in GpuPrecision::ALL {
            let code = nvrtc.build(&Target { precision, ..target() }.flags());
            let code = code.unwrap_or_else(|error| panic!("{precision:?}: {error}"));
            assert!(code.starts_with(b"\x7fELF"), "{precision:?}");
        }
    }
}
