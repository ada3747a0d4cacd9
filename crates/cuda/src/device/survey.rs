//! The GPUs of this machine and their properties.

use std::ffi::c_int;
use std::path::PathBuf;

use crate::Error;
use crate::compiler::{Nvrtc, cache_folder};
use crate::driver::Driver;

/// Properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// The number among the machine's GPUs.
    pub number: usize,
    /// The name.
    pub name: String,
    /// The compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub memory: usize,
    /// The number of multiprocessors.
    pub processors: usize,
    /// Bytes of shared memory a block may have: 163 KiB on 8.0, 99 on 8.6 and 8.9, 227 on 9.0.
    pub shared: usize,
    /// The version of the driver: 1000 times the major one plus ten times the minor one.
    pub driver: i32,
}

/// What of CUDA this machine has.
#[derive(Debug)]
pub struct Survey {
    /// The GPUs that the driver sees, or why there are none.
    pub devices: Result<Vec<Properties>, Error>,
    /// The version of NVRTC, or why there is none.
    pub compiler: Result<String, Error>,
    /// The folder of compiled kernels.
    pub cache: Option<PathBuf>,
}

/// Looks for a driver, GPUs and NVRTC.
pub fn survey() -> Survey {
    Survey {
        devices: devices(),
        compiler: Nvrtc::open().map(|compiler| compiler.version_text()),
        cache: cache_folder(),
    }
}

/// The GPUs of this machine.
pub fn devices() -> Result<Vec<Properties>, Error> {
    let driver = Driver::open()?;
    (0..count(&driver)?).map(|number| properties(&driver, number)).collect()
}

pub(super) fn count(driver: &Driver) -> Result<usize, Error> {
    let mut count = 0;
    // SAFETY: a place for a number.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
    Ok(count as usize)
}

pub(super) fn properties(driver: &Driver, number: usize) -> Result<Properties, Error> {
    const MAJOR: c_int = 75;
    const MINOR: c_int = 76;
    const PROCESSORS: c_int = 16;
    const SHARED: c_int = 97;
    let (mut device, mut version, mut memory) = (0, 0, 0);
    let mut name = [0; 256];
    // SAFETY: places for the results, as large as the arguments say.
    unsafe {
        driver.check("cuDeviceGet", (driver.device_get)(&mut device, number as c_int))?;
        driver.check("cuDriverGetVersion", (driver.version)(&mut version))?;
        driver.check("cuDeviceGetName", (driver.device_name)(name.as_mut_ptr(), 255, device))?;
        driver.check("cuDeviceTotalMem", (driver.device_memory)(&mut memory, device))?;
    }
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: a place for a number.
        let code = unsafe { (driver.device_attribute)(&mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code).map(|()| value)
    };
    let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Ok(Properties {
        number,
        name: String::from_utf8_lossy(&name).into_owned(),
        capability: (attribute(MAJOR)?, attribute(MINOR)?),
        memory,
        processors: attribute(PROCESSORS)? as usize,
        shared: attribute(SHARED)? as usize,
        driver: version,
    })
}
