/// How numbers are computed with on a GPU. Norms, softmax and sums are float32 in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuPrecision {
    /// Single precision throughout, without tensor cores.
    Float32,
    /// Single precision, products rounded to tf32 on tensor cores.
    Tf32,
    /// Half precision.
    Float16,
    /// Bfloat16.
    Bfloat16,
    /// Products in int8, a scale for each row of activations; the rest half precision.
    Int8,
    /// Products of steps in fp8 (e4m3), a scale for each row of activations; the rest half precision.
    Fp8,
}

impl GpuPrecision {
    /// All of them.
    pub const ALL: [GpuPrecision; 6] = [
        GpuPrecision::Float32,
        GpuPrecision::Tf32,
        GpuPrecision::Float16,
        GpuPrecision::Bfloat16,
        GpuPrecision::Int8,
        GpuPrecision::Fp8,
    ];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            GpuPrecision::Float32 => "float32",
            GpuPrecision::Tf32 => "tf32",
            GpuPrecision::Float16 => "float16",
            GpuPrecision::Bfloat16 => "bfloat16",
            GpuPrecision::Int8 => "int8",
            GpuPrecision::Fp8 => "fp8",
        }
    }

    /// What products of the source are computed with. They are done once a sentence, and with three bits of
    /// mantissa their errors would be most of what fp8 loses: those of keys and queries go through a softmax, and
    /// every word reads what comes of them.
    pub(crate) fn for_source(self) -> GpuPrecision {
        match self {
            GpuPrecision::Fp8 => GpuPrecision::Float16,
            other => other,
        }
    }

    /// Least compute capability.
    pub(crate) fn needs(self) -> (i32, i32) {
        match self {
            GpuPrecision::Fp8 => (8, 9),
            _ => (8, 0),
        }
    }

    /// `ROWS` of the kernels: how activations are stored.
    pub(crate) fn rows_code(self) -> u32 {
        match self {
            GpuPrecision::Float32 | GpuPrecision::Tf32 => 0,
            GpuPrecision::Float16 | GpuPrecision::Int8 | GpuPrecision::Fp8 => 1,
            GpuPrecision::Bfloat16 => 2,
        }
    }

    /// `PRODUCT` of the kernels.
    pub(crate) fn product_code(self) -> u32 {
        match self {
            GpuPrecision::Float32 => 0,
            GpuPrecision::Float16 => 1,
            GpuPrecision::Bfloat16 => 2,
            GpuPrecision::Tf32 => 3,
            GpuPrecision::Int8 => 4,
            GpuPrecision::Fp8 => 5,
        }
    }

    /// Flags for the compiler of kernels.
    pub(crate) fn flags(self) -> [String; 3] {
        let (rows, product) = (self.rows_code(), self.product_code());
        ["-std=c++17".to_owned(), format!("-DROWS={rows}"), format!("-DPRODUCT={product}")]
    }

    /// Bytes of a stored activation.
    pub(crate) fn row_size(self) -> usize {
        if self.rows_code() == 0 { 4 } else { 2 }
    }

    /// Bytes of an operand of a product.
    pub(crate) fn product_size(self) -> usize {
        match self {
            GpuPrecision::Float32 | GpuPrecision::Tf32 => 4,
            GpuPrecision::Float16 | GpuPrecision::Bfloat16 => 2,
            GpuPrecision::Int8 | GpuPrecision::Fp8 => 1,
        }
    }

    /// Whether activations are rounded to another form before a product.
    pub(crate) fn quantises(self) -> bool {
        self.product_size() == 1
    }

    /// Whether products run on tensor cores.
    pub fn uses_tensor_cores(self) -> bool {
        self != GpuPrecision::Float32
    }
}

impl std::str::FromStr for GpuPrecision {
    type Err = String;

    fn from_str(name: &str) -> Result<GpuPrecision, String> {
        let found = GpuPrecision::ALL.into_iter().find(|numbers| numbers.name() == name);
        found.ok_or_else(|| "expected float32, tf32, float16, bfloat16, int8 or fp8".to_owned())
    }
}
