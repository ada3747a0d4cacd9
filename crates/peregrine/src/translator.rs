//! A model ready to translate.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use peregrine_cpu::{Cpu, Isa, Tuner, split_products};
use peregrine_decode::batching::{BatchSize, Queue, Waiting};
use peregrine_decode::{Decoder, Done, Job, Member, Settings, Stats};
use peregrine_model::{Model, OpenOptions, Precision};
use peregrine_nn::{MOST_POSITIONS, Prepared, prepare_with};

use crate::gpu::{self, OnGpu};
use crate::{Compute, Error, Options, Translation};

/// A model ready to translate. Threads may share it.
pub struct Translator {
    /// What the model says, without its weights: the networks have packed theirs.
    model: Model,
    networks: Vec<Arc<dyn Prepared>>,
    precision: &'static str,
    device: String,
    on_gpu: bool,
    /// Workers at rest; their caches are worth keeping.
    decoders: Mutex<Vec<Decoder>>,
}

/// What tuning across precisions gives up.
const ACROSS: &str = "products are computed in float32 or int16, whatever is faster: \
    a translation may depend on its batch, on the machine and on the run";

/// A batch that fills a GPU.
const GPU_BATCH: BatchSize = BatchSize { sentences: 1024, tokens: 1 << 15 };

/// A line to translate.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The line.
    pub text: &'a str,
    /// How its translation begins, if that is known.
    pub prefix: Option<&'a str>,
    /// Exactly this many target tokens, whatever they are: for measuring speed on equal terms.
    pub length: Option<usize>,
}

impl<'a> Request<'a> {
    /// A line of which nothing else is known.
    pub fn new(text: &'a str) -> Request<'a> {
        Request { text, prefix: None, length: None }
    }
}

impl Translator {
    /// Opens a model: a file or directory of any format; several are an ensemble.
    pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Translator, Error> {
        Translator::new(peregrine_model::open(paths, options)?)
    }

    /// Opens the built-in English-Portuguese model. A build without the feature `builtin` has none.
    pub fn builtin() -> Result<Translator, Error> {
        Translator::new(crate::builtin_model()?)
    }

    /// Packs a model's weights for this machine, in the precision they are stored in.
    pub fn new(model: Model) -> Result<Translator, Error> {
        Translator::prepare(model, &Compute::default())
    }

    /// Packs a model's weights.
    pub fn prepare(mut model: Model, compute: &Compute) -> Result<Translator, Error> {
        if let Some(OnGpu { networks, precision, device }) = gpu::prepare(&mut model, compute)? {
            let decoders = Mutex::default();
            return Ok(Translator { model, networks, precision, device, on_gpu: true, decoders });
        }
        let isa = match compute.isa {
            Some(level) => Isa::new(level).ok_or(Error::Instructions(level.name()))?,
            None => Isa::best(),
        };
        let precision = compute.precision_for(&model);
        let across = compute.tuner.as_ref().is_some_and(Tuner::crosses_precisions);
        if across || precision == Precision::Int16 {
            model.notes.extend(Compute::unfit(&model));
        }
        if across {
            model.notes.push(ACROSS.to_owned());
        }
        let mut networks = Vec::new();
        for member in &mut model.members {
            let weights = std::mem::take(&mut member.weights);
            let cpu = Cpu::new(isa, precision)
                .without(&compute.without)
                .with_functions(compute.functions)
                .with_integers(compute.integers)
                .with_tuner(compute.tuner.clone())
                .with_row_blocks(!compute.all_rows_at_once)
                .with_screening(!compute.all_output_bytes);
            let cpu = match compute.cache {
                Some(keeping) => cpu.with_cache(keeping),
                None => cpu,
            };
            let speedups = &compute.speedups;
            networks.push(prepare_with(cpu, &member.architecture, &weights, speedups)?);
        }
        let precision = if across { "float32 or int16" } else { precision.name() };
        let device = format!("CPU, {}", isa.level().name());
        let decoders = Mutex::default();
        Ok(Translator { model, networks, precision, device, on_gpu: false, decoders })
    }

    /// The precision products are computed in.
    pub fn precision(&self) -> &'static str {
        self.precision
    }

    /// What computes, in words.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Bytes taken by what was computed ahead of the first sentence (recurrent networks).
    pub fn precomputed_bytes(&self) -> usize {
        self.networks.iter().map(|network| network.precomputed_bytes()).sum()
    }

    /// What is known of the model. Its weights have been packed and are no longer there.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How the model's own configuration would have it translate, in batches that suit the device.
    pub fn options(&self) -> Options {
        let options = Options::new(self.model.search.clone());
        match self.on_gpu {
            true => Options { batch: GPU_BATCH, encode_tokens: GPU_BATCH.tokens, ..options },
            false => options,
        }
    }

    /// Translates a line with the model's own settings.
    pub fn translate(&self, text: &str) -> String {
        let translations = self.translate_batch(&[Request::new(text)], &self.options());
        translations.first().map(|t| t.text().to_owned()).unwrap_or_default()
    }

    /// Translates lines; the answers are in their order. For texts of any length there is
    /// [`Self::stream`].
    pub fn translate_batch(&self, requests: &[Request<'_>], options: &Options) -> Vec<Translation> {
        self.translate_measured(requests, options, None)
    }

    /// The same; what the workers did is added to `stats`.
    pub fn translate_measured(
        &self,
        requests: &[Request<'_>],
        options: &Options,
        mut stats: Option<&mut Stats>,
    ) -> Vec<Translation> {
        let start = Instant::now();
        let mut jobs = Vec::new();
        let mut lines = Vec::with_capacity(requests.len());
        let mut places = Vec::new();
        for request in requests {
            let plan = self.plan(request, options);
            for (part, job) in plan.jobs {
                places.push((lines.len(), part));
                jobs.push(job);
            }
            lines.push(plan.parts);
        }
        if let Some(stats) = stats.as_deref_mut() {
            stats.tokenise += start.elapsed();
        }
        let results = self.run(jobs, &self.settings(options), options, stats.as_deref_mut());
        let start = Instant::now();
        for ((line, part), done) in places.into_iter().zip(results) {
            lines[line][part].finish(done);
        }
        let translations = lines.iter().map(|parts| self.translation(parts, options)).collect();
        if let Some(stats) = stats {
            stats.detokenise += start.elapsed();
        }
        translations
    }

    /// Longest framed source, at least one token and its frame.
    pub(crate) fn max_source(&self, options: &Options) -> usize {
        let limits = self.model.members.iter().filter_map(|m| m.architecture.position_limit());
        let frame = self.model.members[0].architecture.source_frame().len();
        let longest = options.search.max_source.min(MOST_POSITIONS);
        limits.fold(longest, usize::min).max(frame + 1)
    }

    /// Target words a shortlist leaves for a sentence; a forced prefix is always allowed.
    pub(crate) fn words(
        &self,
        source: &[u32],
        prefix: &[u32],
        options: &Options,
    ) -> Option<Arc<[u32]>> {
        let shortlist = self.model.shortlist.as_ref().filter(|_| options.shortlist)?;
        let mut words = shortlist.select(source);
        words.extend(prefix);
        words.sort_unstable();
        words.dedup();
        Some(words.into())
    }

    pub(crate) fn settings(&self, options: &Options) -> Settings {
        Settings {
            search: options.search.clone(),
            end: self.model.target.eos(),
            unknown: self.model.target.unk(),
            scores: options.scores || options.n_best > 1,
            alignments: options.alignments || options.replace_unknown.is_some(),
            n_best: options.n_best,
            guard: options.guard,
        }
    }

    /// Runs jobs on as many workers as asked for; the results are in their order.
    pub(crate) fn run(
        &self,
        jobs: Vec<Job>,
        settings: &Settings,
        options: &Options,
        stats: Option<&mut Stats>,
    ) -> Vec<Done> {
        let workers = options.threads.clamp(1, jobs.len().max(1));
        let results: Mutex<Vec<Done>> = Mutex::new(vec![Done::default(); jobs.len()]);
        let queue = Queue::new(options.batching, usize::MAX, workers);
        for (i, job) in jobs.into_iter().enumerate() {
            queue.push(Waiting { ticket: i as u64, job });
        }
        queue.close();
        let tracing = stats.as_ref().map(|stats| stats.tracing);
        let stats = Mutex::new(stats);
        let work = || {
            let mut own = Stats { tracing: tracing == Some(true), ..Stats::default() };
            let mut done = |done: Done| {
                let place = done.ticket as usize;
                results.lock().unwrap_or_else(PoisonError::into_inner)[place] = done;
            };
            self.work(&queue, settings, options, tracing.map(|_| &mut own), &mut done);
            if let Some(stats) = stats.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                stats.add(&own);
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            work();
            others.into_iter().for_each(join);
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one worker does.
    pub(crate) fn work(
        &self,
        queue: &Queue,
        settings: &Settings,
        options: &Options,
        stats: Option<&mut Stats>,
        done: &mut dyn FnMut(Done),
    ) {
        let mut decoder = self.take_decoder();
        split_products(options.threads_per_sentence, || {
            decoder.serve(queue, &options.batching(), settings, stats, done);
        });
        if !decoder.faulted() {
            self.give_decoder_back(decoder);
        }
    }

    fn take_decoder(&self) -> Decoder {
        let resting = self.decoders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        resting.unwrap_or_else(|| {
            let weights = &self.model.member_weights;
            let members = self.networks.iter().zip(weights).map(|(network, &weight)| Member {
                network: Arc::clone(network).session(),
                weight,
            });
            Decoder::new(members.collect())
        })
    }

    fn give_decoder_back(&self, decoder: Decoder) {
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner).push(decoder);
    }
}

/// Waits for a worker; what ended it before its time goes on here.
pub(crate) fn join<T>(worker: ScopedJoinHandle<'_, T>) -> T {
    worker.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason))
}
