//! A model ready to translate.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use peregrine_cpu::{Cpu, Isa, Tuner, split_products};
use peregrine_decode::batching::{BatchSize, Priority, Queue, Waiting};
use peregrine_decode::{
    Counters, Done, Event, Failure, Job, Member, Settings, Stats, Worker, Workplace, clock,
};
use peregrine_model::{Model, OpenOptions, Precision};
use peregrine_nn::{Echo, MOST_POSITIONS, Prepared, prepare_with};
use peregrine_text::Split;

use crate::carry::Spelling;
use crate::gpu::{self, OnGpu};
use crate::part::Parts;
use crate::quality::languages;
use crate::registry::Pair;
use crate::{Calibration, Carry, Compute, Error, Options, Request, Translation, Workers};

/// A model ready to translate. Clones share the same model, also between threads; its memory is freed with the
/// last of them.
#[derive(Clone)]
pub struct Translator {
    shared: Arc<Shared>,
    /// By which quality is scored.
    table: Arc<Calibration>,
    /// The languages of requests that name none, and what they mean to the model.
    chosen: Arc<(Option<String>, Option<String>)>,
    pair: Option<Arc<Pair>>,
}

struct Shared {
    /// The model without its weights, which the networks have packed.
    model: Model,
    networks: Vec<Arc<dyn Prepared>>,
    precision: &'static str,
    device: String,
    on_gpu: bool,
    weight_bytes: u64,
    /// Idle workers, kept for their caches.
    workers: Mutex<Vec<Worker>>,
    /// What the model can spell, once it is asked for.
    spelling: Spelling,
    /// The model's languages, once they are asked for.
    languages: OnceLock<Option<Pair>>,
}

/// What tuning across precisions gives up.
const ACROSS: &str = "products are computed in float32 or int16, whatever is faster: \
    a translation may depend on its batch, on the machine and on the run";

/// A batch that fills a GPU.
const GPU_BATCH: BatchSize = BatchSize { sentences: 1024, tokens: 1 << 15 };

/// Workers that keep an H200 busiest: `translate -t N` on 400 copies of FLORES devtest with the built-in model takes 15.2 s with four,
/// 22 s with one and 20 s with eight.
const GPU_WORKERS: usize = 4;

/// The most threads that split and tokenise for a GPU.
const GPU_READERS: usize = 4;

/// Stand-ins for a model's networks.
fn echo(model: &mut Model) -> OnGpu {
    let end = model.target.eos();
    let stand_in = |member: &mut peregrine_model::Member| {
        drop(std::mem::take(&mut member.weights));
        Arc::new(Echo::new(&member.architecture, end)) as Arc<dyn Prepared>
    };
    let networks = model.members.iter_mut().map(stand_in).collect();
    OnGpu { networks, precision: "float16", device: "none, echo".to_owned() }
}

/// The bytes of that many parameters in a precision.
fn weight_bytes(parameters: usize, precision: &str) -> u64 {
    let bytes = match precision {
        "int8" | "fp8" => 1,
        "int16" | "float16" | "bfloat16" => 2,
        _ => 4,
    };
    parameters as u64 * bytes
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
        let parameters = model.parameters();
        let table = Arc::new(Calibration::of_model(&mut model));
        let languages = OnceLock::new();
        let beside = match compute.echo {
            true => Some(echo(&mut model)),
            false => gpu::prepare(&mut model, compute)?,
        };
        if let Some(OnGpu { networks, precision, device }) = beside {
            let (on_gpu, workers, spelling) = (true, Mutex::default(), Spelling::default());
            let weight_bytes = weight_bytes(parameters, precision);
            let shared = Shared {
                model,
                networks,
                precision,
                device,
                on_gpu,
                weight_bytes,
                workers,
                spelling,
                languages,
            };
            return Ok(Translator::of(shared, table));
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
        let needed = weight_bytes(parameters, precision.name());
        if let Some(free) = crate::available_memory().filter(|free| needed > *free) {
            return Err(Error::TooLarge { needed, free, precision: precision.name() });
        }
        let mut networks = Vec::new();
        for member in &mut model.members {
            let weights = std::mem::take(&mut member.weights);
            let cpu = Cpu::new(isa, precision)
                .without(&compute.without)
                .with_functions(compute.functions)
                .with_int8_options(compute.integers)
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
        let (on_gpu, workers, spelling) = (false, Mutex::default(), Spelling::default());
        let weight_bytes = weight_bytes(parameters, precision);
        let shared = Shared {
            model,
            networks,
            precision,
            device,
            on_gpu,
            weight_bytes,
            workers,
            spelling,
            languages,
        };
        Ok(Translator::of(shared, table))
    }

    fn of(shared: Shared, table: Arc<Calibration>) -> Translator {
        Translator { shared: Arc::new(shared), table, chosen: Arc::default(), pair: None }
    }

    /// The same translator with the languages of requests that name none.
    pub(crate) fn with_chosen(self, chosen: Arc<(Option<String>, Option<String>)>) -> Translator {
        let pair = self.named_pair(chosen.0.as_deref(), chosen.1.as_deref());
        Translator { pair: pair.map(Arc::new), chosen, ..self }
    }

    /// The languages of requests that name none.
    pub(crate) fn chosen(&self) -> (Option<&str>, Option<&str>) {
        (self.chosen.0.as_deref(), self.chosen.1.as_deref())
    }

    /// The same model with quality scored by another table.
    pub fn with_calibration(self, table: Calibration) -> Translator {
        Translator { table: Arc::new(table), ..self }
    }

    /// The precision of products.
    pub fn precision(&self) -> &'static str {
        self.shared.precision
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.shared.device
    }

    /// Bytes of pre-computed (memoised) embeddings of recurrent networks.
    pub fn precomputed_bytes(&self) -> usize {
        self.shared.networks.iter().map(|network| network.precomputed_bytes()).sum()
    }

    /// The model without its weights, which have been packed.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// What the model can spell, as far as that has been asked for.
    pub(crate) fn spelling(&self) -> &Spelling {
        &self.shared.spelling
    }

    /// The table by which quality is scored.
    pub(crate) fn table(&self) -> &Arc<Calibration> {
        &self.table
    }

    /// The languages between which it translates: those of [`Self::between`], or else those that the model's files or names
    /// tell. The languages of a multilingual model are in [`Model::languages`].
    pub fn languages(&self) -> Option<&Pair> {
        self.pair.as_deref().or_else(|| self.own_pair())
    }

    /// The languages that the model's files or names tell.
    pub(crate) fn own_pair(&self) -> Option<&Pair> {
        let find = || languages(&self.model().members.first()?.path);
        self.shared.languages.get_or_init(find).as_ref()
    }

    /// The options of the model's own configuration.
    pub fn options(&self) -> Options {
        Options::new(self.model().search.clone())
    }

    /// The options for text as people write it: lines are split into sentences, and what the model cannot spell is carried
    /// through. A model that takes prepared lines (words and marks apart, subwords, the code of a language in front) gets them as
    /// they are.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let request = Request::new("Two dogs play in the snow. 🐕🐕");
    /// let translation = translator.translate_batch(&[request], &translator.text_options())?.remove(0);
    /// assert_eq!(translation.text(), "Dois cães brincam na neve. 🐕🐕");
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn text_options(&self) -> Options {
        match self.model().source.reads_text() || self.pair.is_some() {
            true => self.options().with_split(Split::Sentence).with_carry(Carry::On),
            false => self.options(),
        }
    }

    /// One worker, with a batch size for the device.
    pub fn workers(&self) -> Workers {
        match self.shared.on_gpu {
            true => {
                Workers { batch: GPU_BATCH, encode_tokens: GPU_BATCH.tokens, ..Workers::default() }
            }
            false => Workers::default(),
        }
    }

    /// Whether the model is computed on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.shared.on_gpu
    }

    /// Workers that suit the device: on a CPU one for each physical core this process may use, on a GPU four.
    pub fn auto_threads(&self) -> usize {
        match self.shared.on_gpu {
            true => GPU_WORKERS,
            false => crate::cores(),
        }
    }

    /// Threads that split and tokenise a stream for so many workers. On a CPU, where that is a small part of the work, there is one; a
    /// GPU must not wait for it.
    pub(crate) fn readers(&self, workers: usize) -> usize {
        match self.shared.on_gpu {
            true => crate::cores().saturating_sub(workers).clamp(1, GPU_READERS),
            false => 1,
        }
    }

    /// Bytes of the packed weights: the parameters in the precision of products.
    pub fn weight_bytes(&self) -> u64 {
        self.shared.weight_bytes
    }

    /// Translates a text with the model's own settings.
    pub fn translate(&self, text: &str) -> Result<String, Error> {
        let translations = self.translate_batch(&[Request::new(text)], &self.options())?;
        Ok(translations.first().map(|t| t.text().to_owned()).unwrap_or_default())
    }

    /// Translates texts on this thread; the translations are in their order. A request's own options override
    /// `options`; deadlines and priorities count in a [`Service`](crate::Service) only. For
    /// more than fits the memory there is [`Self::stream`].
    pub fn translate_batch(
        &self,
        requests: &[Request<'_>],
        options: &Options,
    ) -> Result<Vec<Translation>, Error> {
        self.translate_batch_with(requests, options, &self.workers(), None)
    }

    /// Translates texts on as many threads as `workers` says, this one included; their counts and times are added
    /// to `stats`.
    pub fn translate_batch_with(
        &self,
        requests: &[Request<'_>],
        options: &Options,
        workers: &Workers,
        mut stats: Option<&mut Stats>,
    ) -> Result<Vec<Translation>, Error> {
        let start = clock::now();
        let shares = |request: &Request<'_>| request.options.is_none() && !request.has_languages();
        let common = match requests.iter().any(shares) {
            true => Some(self.common(options, None)?),
            false => None,
        };
        let mut jobs = Vec::new();
        let mut lines = Vec::with_capacity(requests.len());
        let mut places = Vec::new();
        for request in requests {
            let split = match common.as_ref().filter(|_| shares(request)) {
                Some(common) => self.split_line(request, common)?,
                None => {
                    let options = request.options.unwrap_or(options);
                    self.split_line(request, &self.common(options, Some(request))?)?
                }
            };
            for (part, job) in split.jobs {
                places.push((lines.len(), part));
                jobs.push(job);
            }
            lines.push(split.parts);
        }
        if let Some(stats) = stats.as_deref_mut() {
            stats.tokenise += start.elapsed();
        }
        while !jobs.is_empty() {
            let results = self.run(std::mem::take(&mut jobs), workers, stats.as_deref_mut())?;
            for ((line, part), done) in std::mem::take(&mut places).into_iter().zip(results) {
                for (part, job) in lines[line].finish(part, done, self) {
                    places.push((line, part));
                    jobs.push(job);
                }
            }
        }
        let start = clock::now();
        let translation = |(parts, request): (&Parts, &Request<'_>)| {
            self.translation(parts, request.options.unwrap_or(options))
        };
        let translations = lines.iter().zip(requests).map(translation).collect();
        if let Some(stats) = stats {
            stats.detokenise += start.elapsed();
        }
        Ok(translations)
    }

    /// The longest framed source: at least one token and its frame.
    pub(crate) fn max_source(&self, options: &Options) -> usize {
        let limits = self.model().members.iter().filter_map(|m| m.architecture.position_limit());
        // Begin, end, a language behind the end, and a token.
        const LEAST: usize = 4;
        let longest = options.search.max_source.min(MOST_POSITIONS);
        limits.fold(longest, usize::min).max(LEAST)
    }

    /// The target words that the shortlist allows a sentence; a forced prefix is always allowed.
    pub(crate) fn words(
        &self,
        source: &[u32],
        prefix: &[u32],
        options: &Options,
    ) -> Option<Arc<[u32]>> {
        let shortlist = self.model().shortlist.as_ref().filter(|_| options.shortlist)?;
        let mut words = shortlist.select(source);
        words.extend(prefix);
        words.sort_unstable();
        words.dedup();
        Some(words.into())
    }

    pub(crate) fn settings(&self, options: &Options) -> Settings {
        let target = &self.model().target;
        let mut settings = Settings::new(options.search.clone(), target.eos(), target.unk());
        settings.scores = options.scores || options.quality || options.n_best > 1;
        settings.alignments = options.alignments || options.replace_unknown.is_some();
        settings.n_best = options.n_best;
        settings.guard = options.guard;
        settings
    }

    /// Runs jobs on as many workers as given; the results are in their order.
    pub(crate) fn run(
        &self,
        jobs: Vec<Job>,
        workers: &Workers,
        stats: Option<&mut Stats>,
    ) -> Result<Vec<Done>, Error> {
        let threads = workers.threads.clamp(1, jobs.len().max(1));
        let results: Mutex<Vec<Done>> = Mutex::new(vec![Done::default(); jobs.len()]);
        let failed: Mutex<Option<Failure>> = Mutex::default();
        let queue = Queue::new(workers.batching, usize::MAX, threads);
        let source = queue.open(Priority::Bulk);
        for (i, job) in jobs.into_iter().enumerate() {
            queue.push(source, Waiting { ticket: i as u64, job });
        }
        queue.close();
        let tracing = stats.as_ref().map(|stats| stats.tracing);
        let stats = Mutex::new(stats);
        let counters = Counters::default();
        let work = || {
            let mut own = Stats { tracing: tracing == Some(true), ..Stats::default() };
            let mut tell = |event: Event| match event {
                Event::Done(done) => {
                    let place = done.ticket as usize;
                    results.lock().unwrap_or_else(PoisonError::into_inner)[place] = done;
                }
                Event::Failed { failure, .. } => {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                    queue.stop();
                }
                Event::Token { .. } => {}
            };
            self.work(&queue, workers, &counters, tracing.map(|_| &mut own), &mut tell);
            if let Some(stats) = stats.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                stats.add(&own);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                std::thread::Builder::new().spawn_scoped(scope, work).map_err(Error::Thread)?;
            }
            work();
            Ok::<(), Error>(())
        })?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure.into()),
            None => Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Runs one worker until the queue is closed and empty, or stopped.
    pub(crate) fn work(
        &self,
        queue: &Queue,
        workers: &Workers,
        counters: &Counters,
        stats: Option<&mut Stats>,
        tell: &mut dyn FnMut(Event),
    ) {
        let mut worker = self.take_worker();
        let batching = workers.batching();
        let place = Workplace { queue, batching: &batching, counters };
        split_products(workers.threads_per_sentence, || worker.serve(place, stats, tell));
        self.resting().push(worker);
    }

    fn resting(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_worker(&self) -> Worker {
        let resting = self.resting().pop();
        resting.unwrap_or_else(|| {
            let networks = self.shared.networks.clone();
            let weights = self.model().member_weights.clone();
            Worker::new(move || {
                let members = networks.iter().zip(&weights).map(|(network, &weight)| Member {
                    network: Arc::clone(network).session(),
                    weight,
                });
                members.collect()
            })
        })
    }

    /// Frees the working memory that idle workers keep for the next text.
    pub fn trim(&self) {
        self.resting().clear();
    }
}
