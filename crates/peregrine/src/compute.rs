//! How products are computed.

use peregrine_cpu::{CachePrecision, Functions, Int8Options, Level, Technique, Tuner, fits_int16};
use peregrine_model::{Model, Precision};
use peregrine_nn::Speedups;

use crate::gpu::{GpuPrecision, OutputLayer};

/// How products are computed. The default is the fastest for the model and the machine.
#[derive(Debug, Clone, Default)]
pub struct Compute {
    /// The precision of products on a CPU: int8, int16, bfloat16 or float32. By default int8 if most of a model is
    /// stored in int8, else float32.
    pub precision: Option<Precision>,
    /// The instruction set; by default the best the CPU has.
    pub isa: Option<Level>,
    /// The precision of the KV cache; by default int8 if products are in int8, float16 if they are in
    /// bfloat16, else float32.
    pub cache: Option<CachePrecision>,
    /// Variants of int8 products, for comparison.
    pub integers: Int8Options,
    /// Whether epilogues are computed for all rows at once, and not in blocks of rows that stay in
    /// cache.
    pub all_rows_at_once: bool,
    /// Whether the output layer reads all bytes of its weights, and not first the bytes that rule out most
    /// words.
    pub all_output_bytes: bool,
    /// Techniques that are switched off, to measure what each gives.
    pub without: Vec<Technique>,
    /// The auto-tuner, which times kernels and picks the fastest for each shape. Without it fixed rules pick.
    pub tuner: Option<Tuner>,
    /// Memoisation in recurrent networks.
    pub speedups: Speedups,
    /// How the functions of recurrent cells are computed.
    pub functions: Functions,
    /// The device; by default the CPU, to which all fields above apply.
    pub device: Device,
    /// The precision on a GPU; by default float16.
    pub gpu_precision: Option<GpuPrecision>,
    /// Whether a GPU keeps the KV cache in fp8 (e4m3), half as large as in float16.
    pub fp8_cache: bool,
    /// The top-k kernels of a GPU's output layer. All find the same words.
    pub output_layer: OutputLayer,
    /// Whether a GPU encodes sentences between the steps of running ones, not on a side stream.
    pub encode_in_turn: bool,
    /// Whether a stand-in that says the source again takes the place of the networks, to measure everything else.
    pub echo: bool,
}

/// Where a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A GPU, by its number. A build without the feature `cuda` refuses it.
    Cuda(usize),
    /// The first GPU if there is one that can be used, else the CPU.
    Auto,
}

impl std::str::FromStr for Device {
    type Err = String;

    /// ```
    /// use peregrine::Device;
    /// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
    /// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
    /// ```
    fn from_str(name: &str) -> Result<Device, String> {
        let expected = || "expected auto, cpu, cuda or cuda:NUMBER".to_owned();
        match (name, name.strip_prefix("cuda:")) {
            ("auto", _) => Ok(Device::Auto),
            ("cpu", _) => Ok(Device::Cpu),
            ("cuda", _) => Ok(Device::Cuda(0)),
            (_, Some(number)) => number.parse().map(Device::Cuda).map_err(|_| expected()),
            _ => Err(expected()),
        }
    }
}

impl Compute {
    /// Products in float32, as in the tools that made the models.
    pub fn float32() -> Compute {
        Compute { precision: Some(Precision::Float32), ..Compute::default() }
    }

    /// Products in int8.
    pub fn int8() -> Compute {
        Compute { precision: Some(Precision::Int8), ..Compute::default() }
    }

    /// Products in int16.
    pub fn int16() -> Compute {
        Compute { precision: Some(Precision::Int16), ..Compute::default() }
    }

    /// All on a GPU.
    pub fn cuda(number: usize, precision: GpuPrecision) -> Compute {
        Compute {
            device: Device::Cuda(number),
            gpu_precision: Some(precision),
            ..Compute::default()
        }
    }

    /// The same on a device, in the precision of that name: `auto`, `float32`, `bfloat16`, `int16`, `int8`; on a GPU also `tf32`,
    /// `float16` and `fp8`. A precision that only one device has is a choice of that device.
    ///
    /// ```
    /// use peregrine::{Compute, Device, Precision};
    /// let compute = Compute::default().on(Device::Cpu, "int8");
    /// assert_eq!(compute.unwrap().precision, Some(Precision::Int8));
    /// assert!(Compute::default().on(Device::Cpu, "int9").is_err());
    /// ```
    pub fn on(self, mut device: Device, name: &str) -> Result<Compute, String> {
        let precision = match name {
            "float32" => Some(Precision::Float32),
            "bfloat16" => Some(Precision::Bfloat16),
            "int16" => Some(Precision::Int16),
            "int8" => Some(Precision::Int8),
            _ => None,
        };
        let gpu_precision = match name.parse::<GpuPrecision>() {
            Err(reason) if name != "auto" && precision.is_none() => {
                return Err(format!("{name}: {reason}"));
            }
            gpu_precision => gpu_precision.ok(),
        };
        match (device, precision, gpu_precision) {
            (_, None, None) | (Device::Auto, Some(_), Some(_)) => {}
            (Device::Cuda(_), _, None) => return Err(format!("{name}: not on a GPU")),
            (Device::Cpu, None, _) => return Err(format!("{name}: not on a processor")),
            (Device::Auto, None, _) => device = Device::Cuda(0),
            (Device::Auto, _, None) => device = Device::Cpu,
            (Device::Cpu | Device::Cuda(_), _, _) => {}
        }
        Ok(Compute { precision, device, gpu_precision, ..self })
    }

    /// Matrices that do not fit 16-bit fixed point, and so are computed in float32: a note each.
    pub(crate) fn unfit(model: &Model) -> Vec<String> {
        let matrices = model.members.iter().flat_map(|member| {
            let matrix = |(_, weight): &(&str, &peregrine_model::Weight)| weight.shape.len() == 2;
            member.weights.iter().filter(matrix).map(move |(name, weight)| (member, name, weight))
        });
        let unfit = matrices.filter(|(_, name, weight)| {
            !name.ends_with(".embedding") && !name.ends_with(".positions") && !fits_int16(weight)
        });
        let note = |member: &peregrine_model::Member, name: &str| {
            let path = member.path.display();
            format!("{path}: {name} does not fit 16-bit fixed point: computed in float32")
        };
        unfit.map(|(member, name, _)| note(member, name)).collect()
    }

    pub(crate) fn precision_for(&self, model: &Model) -> Precision {
        let stored = model.members.first().map(|member| member.stored_precision());
        match self.precision.or(stored) {
            Some(Precision::Int8) => Precision::Int8,
            Some(Precision::Bfloat16) if self.precision.is_some() => Precision::Bfloat16,
            Some(Precision::Int16) if self.precision.is_some() => Precision::Int16,
            _ => Precision::Float32,
        }
    }
}
