//! How products are computed.

use peregrine_cpu::{CachePrecision, Functions, Int8Options, Level, Technique, Tuner, fits_int16};
use peregrine_model::{Model, Precision};
use peregrine_nn::Speedups;

use crate::gpu::{GpuPrecision, OutputLayer};

/// How products are computed. The default is what the model and the machine are best at.
#[derive(Debug, Clone, Default)]
pub struct Compute {
    /// In int8, int16, bfloat16 or float32; by default int8 where most of a model is stored in int8.
    pub precision: Option<Precision>,
    /// With which instructions; by default the best there are.
    pub isa: Option<Level>,
    /// In how many bits attention keeps keys and values from step to step; by default in bytes where products are
    /// in int8, in half precision where they are in bfloat16, else in float32.
    pub cache: Option<CachePrecision>,
    /// Other ways to compute in int8, for comparison.
    pub integers: Int8Options,
    /// Whether what follows a product is done for all rows at once, and not in blocks of rows that stay in
    /// cache.
    pub all_rows_at_once: bool,
    /// Whether all bytes of the output layer are read even where half of them tell which words cannot be
    /// the best.
    pub all_output_bytes: bool,
    /// Techniques that are not used, to see what each gives.
    pub without: Vec<Technique>,
    /// Who times kernels and picks the fastest for each shape; without, rules do.
    pub tuner: Option<Tuner>,
    /// Short cuts of recurrent networks.
    pub speedups: Speedups,
    /// How the functions of recurrent cells are computed.
    pub functions: Functions,
    /// Where; by default on the CPU, to which all of the above applies.
    pub device: Device,
    /// With which numbers on a GPU; by default float16.
    pub numbers: Option<GpuPrecision>,
    /// How a GPU finds the best words; all ways find the same.
    pub output_layer: OutputLayer,
    /// Whether a GPU encodes sentences in turn with the steps of those that are running, not beside them.
    pub encode_in_turn: bool,
}

/// Where a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// On the processor.
    #[default]
    Cpu,
    /// On a GPU, by its number. A build without the feature `cuda` refuses it.
    Cuda(usize),
    /// On the first GPU, if there is one that can be used, else on the processor.
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
    /// In float32, as the tools that made the models compute.
    pub fn float32() -> Compute {
        Compute { precision: Some(Precision::Float32), ..Compute::default() }
    }

    /// In int8.
    pub fn int8() -> Compute {
        Compute { precision: Some(Precision::Int8), ..Compute::default() }
    }

    /// In 16-bit fixed point.
    pub fn int16() -> Compute {
        Compute { precision: Some(Precision::Int16), ..Compute::default() }
    }

    /// On a GPU.
    pub fn cuda(number: usize, numbers: GpuPrecision) -> Compute {
        Compute { device: Device::Cuda(number), numbers: Some(numbers), ..Compute::default() }
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
