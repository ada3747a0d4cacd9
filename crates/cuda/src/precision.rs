//! The precisions of products.

/// The precision of products on a GPU. Norms, softmax and sums are float32 in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuPrecision {
    /// Float32 throughout, without tensor cores.
    Float32,
    /// Float32; operands of products are rounded to tf32 for tensor cores.
    Tf32,
    /// Float16.
    Float16,
    /// Bfloat16.
    Bfloat16,
    /// Products in int8, with a quantisation scale for each row of activations; the rest in float16.
    Int8,
    /// Products of decoding steps in fp8 (e4m3), with a quantisation scale for each row of activations; the rest in float16.
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

    /// The precision of products that see the source alone. They are computed once a sentence, and with the three
    /// mantissa bits of fp8 their errors would be most of what fp8 loses: errors of keys and queries go through a
    /// softmax, and every output word attends to the result.
    pub(crate) fn for_source(self) -> GpuPrecision {
        match self {
            GpuPrecision::Fp8 => GpuPrecision::Float16,
            other => other,
        }
    }

    /// The least compute capability.
    pub(crate) fn needs(self) -> (i32, i32) {
        match self {
            GpuPrecision::Fp8 => (8, 9),
            _ => (8, 0),
        }
    }

    /// The macro `ROWS` of the kernels: the precision of stored activations.
    pub(crate) fn rows_code(self) -> u32 {
        match self {
            GpuPrecision::Float32 | GpuPrecision::Tf32 => 0,
            GpuPrecision::Float16 | GpuPrecision::Int8 | GpuPrecision::Fp8 => 1,
            GpuPrecision::Bfloat16 => 2,
        }
    }

    /// The macro `PRODUCT` of the kernels.
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

    /// NVRTC's flags for this precision.
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

    /// Whether activations are quantised before a product.
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
        let found = GpuPrecision::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| "expected float32, tf32, float16, bfloat16, int8 or fp8".to_owned())
    }
}
