//! The GPU backend: the operations of [`Backend`], each recorded as kernels on a [`Device`].
//!
//! The trait's methods are short; their bodies are in `layers`, `attention` and `recurrent`, and those of the output
//! layer in [`output`](crate::output).

use std::sync::Arc;

use peregrine_model::{CellKind, Weight};
use peregrine_nn::{
    Attention, Backend, Choices, Dense, Embed, Epilogue, Fault, Moves, NormWeights, PastExtension,
    PreparedOp, Reads, RunAhead, Term, Terms, TopKQuery,
};

use crate::Error;
use crate::device::{Device, Properties, SideWork};
use crate::memory::{Cache, Rows};
use crate::output::{self, Output, OutputCall, OutputLayer, Pending, Selection};
use crate::past::Past;
use crate::precision::GpuPrecision;
use crate::product::Linear;

mod attention;
mod layers;
mod recurrent;

pub use attention::Weights;
use layers::Element;
pub use layers::{Norm, Table};

/// A GPU. Every thread has a CUDA stream of its own there.
#[derive(Clone)]
pub struct Cuda {
    device: Arc<Device>,
    output_layer: OutputLayer,
    in_turn: bool,
    fp8_cache: bool,
}

impl Cuda {
    /// Opens GPU `number` with kernels for `precision`.
    pub fn open(number: usize, precision: GpuPrecision) -> Result<Cuda, Error> {
        Ok(Cuda::on(Device::open(number, precision)?))
    }

    pub(crate) fn on(device: Device) -> Cuda {
        let (device, output_layer) = (Arc::new(device), OutputLayer::default());
        Cuda { device, output_layer, in_turn: false, fp8_cache: false }
    }

    /// The same GPU with another output layer.
    pub fn with_output_layer(self, output_layer: OutputLayer) -> Cuda {
        Cuda { output_layer, ..self }
    }

    /// The same GPU without side streams if `in_turn`: everything runs in the order it was recorded.
    pub fn in_turn(self, in_turn: bool) -> Cuda {
        Cuda { in_turn, ..self }
    }

    /// The same GPU with the KV cache of decoders in fp8 if `fp8`, half as large as in float16.
    pub fn with_fp8_cache(self, fp8: bool) -> Result<Cuda, Error> {
        if fp8 && !self.device.has_fp8_cache() {
            let needed =
                "compute capability 8.9, NVRTC and a precision other than float32 and tf32";
            return Err(Error::Unsupported(format!("a KV cache in fp8 (it needs {needed})")));
        }
        Ok(Cuda { fp8_cache: fp8, ..self })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Waits for all work of this thread. What it prepared, other threads may use from here on.
    pub fn finish(&self) -> Result<(), Error> {
        self.device.finish()
    }

    /// The precision of the kernels.
    pub fn precision(&self) -> GpuPrecision {
        self.device.precision
    }

    /// What the GPU is.
    pub fn properties(&self) -> &Properties {
        &self.device.properties
    }
}

/// The operations of a backend return no errors: a failure of the GPU unwinds with a [`Fault`], which the worker catches
/// and reports.
fn done<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        let out_of_memory = error == Error::OutOfMemory;
        std::panic::resume_unwind(Box::new(Fault { reason: error.to_string(), out_of_memory }))
    })
}

impl Backend for Cuda {
    type Rows = Rows;
    type Cache = Cache;
    type Linear = Linear;
    type Table = Table;
    type Norm = Norm;
    type Output = Output;
    type Selection = Selection;
    type Weights = Weights;
    type Pending = Pending;
    type Past = Past;
    type SideWork = SideWork;

    fn abandon(&self) {
        done(self.device.abandon());
    }

    fn has_side_stream(&self) -> bool {
        !self.in_turn
    }

    fn on_side_stream(&self, work: impl FnOnce()) -> SideWork {
        if self.in_turn {
            work();
            return SideWork::default();
        }
        done(self.device.run_on_side_stream(work))
    }

    fn join(&self, work: &SideWork) {
        done(self.device.join(work));
    }

    /// The papers' output layers leave no lists of candidates that the device could search.
    fn run_ahead(&self) -> RunAhead {
        match self.output_layer {
            OutputLayer::Epilogue => RunAhead::Beams,
            _ => RunAhead::Greedy,
        }
    }

    fn prepare_linear(&self, parts: &[Dense<'_>]) -> Linear {
        done(Linear::prepare(&self.device, self.precision(), parts))
    }

    fn prepare_source_linear(&self, parts: &[Dense<'_>]) -> Linear {
        done(Linear::prepare(&self.device, self.precision().for_source(), parts))
    }

    fn prepare_table(&self, table: &Weight) -> Table {
        done(Table::prepare(&self.device, table))
    }

    fn prepare_norm(&self, norm: NormWeights<'_>) -> Norm {
        done(Norm::prepare(&self.device, norm))
    }

    fn prepare_output(&self, layer: Dense<'_>) -> Output {
        Output { linear: self.prepare_linear(&[layer]) }
    }

    fn select(&self, output: &Output, words: &[u32]) -> Selection {
        done(output.select(&self.device, words))
    }

    fn rows(&self) -> Rows {
        Rows::default()
    }

    fn width(&self, rows: &Rows) -> usize {
        rows.width
    }

    fn reserve(&self, states: &mut Rows, rows: usize, width: usize) {
        done(states.reserve(&self.device, rows, width));
    }

    fn weights(&self) -> Weights {
        Weights::default()
    }

    fn read_weights(&self, weights: &Weights, out: &mut Vec<f32>) {
        done(weights.read(&self.device, out));
    }

    fn cache(&self) -> Cache {
        Cache::new(self.fp8_cache)
    }

    fn working_cache(&self) -> Cache {
        Cache::default()
    }

    fn reserve_cache(&self, cache: &mut Cache, positions: usize, width: usize, heads: usize) {
        done(cache.reserve(&self.device, positions, width, heads));
    }

    fn embed(&self, table: &Table, request: Embed<'_>, out: &mut Rows) {
        done(layers::embed(&self.device, table, request, out));
    }

    fn linear(&self, x: &Rows, linear: &Linear, after: Epilogue<'_, Cuda>, out: &mut Rows) {
        done(layers::linear(&self.device, x, linear, after, out));
    }

    fn process(&self, x: &Rows, ops: &[PreparedOp<Cuda>], input: Option<&Rows>, out: &mut Rows) {
        done(layers::process(&self.device, x, ops, input, out));
    }

    fn extend_past(&self, step: PastExtension<'_>, past: &mut Past) {
        done(past.grow(&self.device, step));
    }

    fn store(&self, x: &Rows, key_column: usize, at: &[u32], cache: &mut Cache) {
        done(attention::store(&self.device, x, key_column, at, cache));
    }

    fn attend(&self, queries: &Rows, to: Attention<'_, Cuda>, out: &mut Rows) {
        done(attention::attend(&self.device, queries, &to, out));
    }

    fn attention_weights(
        &self,
        queries: &Rows,
        to: Attention<'_, Cuda>,
        heads: usize,
        out: &mut Vec<f32>,
    ) {
        done(attention::attention_weights(&self.device, queries, &to, heads, out));
    }

    fn average(
        &self,
        x: &Rows,
        moves: Moves<'_>,
        before: &[u32],
        state: &mut Rows,
        out: &mut Rows,
    ) {
        done(recurrent::average(&self.device, x, moves, before, state, out));
    }

    fn ssru(
        &self,
        candidate: &Rows,
        forget: &Rows,
        moves: Moves<'_>,
        state: &mut Rows,
        out: &mut Rows,
    ) {
        done(recurrent::ssru(&self.device, candidate, forget, moves, state, out));
    }

    fn mix(&self, a: &Rows, x: &Rows, b: &Rows, y: &mut Rows) {
        let operands = [a.address(), x.address(), b.address()];
        done(layers::element(&self.device, Element::Mix, y, operands, [0.0; 2]));
    }

    fn load(&self, state: &Rows, moves: Moves<'_>, out: &mut Rows) {
        done(recurrent::load(&self.device, state, moves, out));
    }

    fn gather(&self, rows: &Rows, at: &[u32], out: &mut Rows) {
        done(out.shape(&self.device, at.len(), rows.width));
        done(layers::move_rows(&self.device, (rows, Some(at)), (out, None, 0), at.len()));
    }

    fn scatter(&self, x: &Rows, at: &[u32], column: usize, out: &mut Rows) {
        done(layers::move_rows(&self.device, (x, None), (out, Some(at), column), at.len()));
    }

    fn resize(&self, rows: &mut Rows, count: usize, width: usize) {
        done(rows.resize(&self.device, count, width));
    }

    fn mean(&self, rows: &Rows, reads: &Reads, out: &mut Rows) {
        done(layers::gather_sum(&self.device, rows, reads, 0, out));
    }

    fn recur(&self, kind: CellKind, terms: Terms<'_, Cuda>, h: &mut Rows, c: Option<&mut Rows>) {
        done(recurrent::recur(&self.device, kind, &terms, h, c.as_deref()));
    }

    fn modulate(&self, a: Term<'_, Cuda>, s: Term<'_, Cuda>, h: &mut Rows) {
        done(recurrent::modulate(&self.device, &a, &s, h));
    }

    fn align(
        &self,
        queries: &Rows,
        keys: &Rows,
        reads: &Reads,
        energy: Option<&Rows>,
        weights: &mut Weights,
    ) {
        done(attention::align(&self.device, queries, keys, reads, energy, weights));
    }

    fn weigh(&self, weights: &Weights, reads: &Reads, values: &Rows, out: &mut Rows) {
        done(layers::gather_sum(&self.device, values, reads, weights.address(), out));
    }

    fn top_k(
        &self,
        x: &Rows,
        output: &Output,
        selections: &[Option<&Selection>],
        query: TopKQuery<'_>,
        pending: &mut Pending,
    ) {
        let (device, layer) = (&self.device, self.output_layer);
        done(OutputCall { device, layer, x, output, selections }.run(query, pending));
    }

    fn take_top_k(&self, pending: &mut Pending, answer: &mut Choices) {
        done(pending.answer(&self.device, answer));
    }

    fn logits(
        &self,
        x: &Rows,
        output: &Output,
        selections: &[Option<&Selection>],
        wanted: &[bool],
        out: &mut Vec<f32>,
    ) {
        done(output::logits(&self.device, x, output, (selections, wanted), out));
    }
}
