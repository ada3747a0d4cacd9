//! A model ready to translate.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use peregrine_cpu::{Cpu, Isa};
use peregrine_decode::batching::sorted_batches;
use peregrine_decode::{Decoder, Hypothesis, Job, Member, Settings};
use peregrine_model::{Model, OpenOptions, Precision};
use peregrine_nn::{Prepared, prepare_with};

use crate::split::encode_parts;
use crate::{Compute, Error, Options, Translation};

/// A model ready to translate. Threads may share it.
pub struct Translator {
    /// What the model says, without its weights: the networks have packed theirs.
    model: Model,
    networks: Vec<Arc<dyn Prepared>>,
    precision: Precision,
    /// Workers at rest; their caches are worth keeping.
    decoders: Mutex<Vec<Decoder>>,
}

/// A line to translate.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The line.
    pub text: &'a str,
    /// How its translation begins, if that is known.
    pub prefix: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A line of which nothing else is known.
    pub fn new(text: &'a str) -> Request<'a> {
        Request { text, prefix: None }
    }
}

impl Translator {
    /// Opens a model: a file or directory of any format; several are an ensemble.
    pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Translator, Error> {
        Translator::new(peregrine_model::open(paths, options)?)
    }

    /// Opens the built-in English-Portuguese model.
    pub fn builtin() -> Result<Translator, Error> {
        Translator::new(crate::builtin_model()?)
    }

    /// Packs a model's weights for this machine, in the precision they are stored in.
    pub fn new(model: Model) -> Result<Translator, Error> {
        Translator::prepare(model, &Compute::default())
    }

    /// Packs a model's weights.
    pub fn prepare(mut model: Model, compute: &Compute) -> Result<Translator, Error> {
        let isa = match compute.isa {
            Some(level) => Isa::new(level).ok_or(Error::Instructions(level.name()))?,
            None => Isa::best(),
        };
        let precision = compute.precision_for(&model);
        if precision == Precision::Int16 {
            model.notes.extend(Compute::unfit(&model));
        }
        let mut networks = Vec::new();
        for member in &mut model.members {
            let weights = std::mem::take(&mut member.weights);
            let cpu = Cpu::new(isa, precision).with_functions(compute.functions);
            let speedups = &compute.speedups;
            networks.push(prepare_with(cpu, &member.architecture, &weights, speedups)?);
        }
        Ok(Translator { model, networks, precision, decoders: Mutex::new(Vec::new()) })
    }

    /// The precision products are computed in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes taken by what was computed ahead of the first sentence (recurrent networks).
    pub fn precomputed_bytes(&self) -> usize {
        self.networks.iter().map(|network| network.precomputed_bytes()).sum()
    }

    /// What is known of the model. Its weights have been packed and are no longer there.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How the model's own configuration would have it translate.
    pub fn options(&self) -> Options {
        Options::new(self.model.search.clone())
    }

    /// Translates a line with the model's own settings.
    pub fn translate(&self, text: &str) -> String {
        let translations = self.translate_batch(&[Request::new(text)], &self.options());
        translations.first().map(|t| t.text().to_owned()).unwrap_or_default()
    }

    /// Translates lines; the answers are in their order.
    pub fn translate_batch(&self, requests: &[Request<'_>], options: &Options) -> Vec<Translation> {
        let mut jobs = Vec::new();
        let parts_of_lines: Vec<usize> = requests
            .iter()
            .map(|request| {
                let before = jobs.len();
                jobs.extend(self.jobs(request, options));
                jobs.len() - before
            })
            .collect();
        let settings = self.settings(options);
        let results = self.run(&jobs, &settings, options);
        let mut parts = results.into_iter().zip(jobs.iter().map(|job| job.source.len()));
        let line = |count: &usize| {
            if *count == 0 {
                let frame = self.model.members[0].architecture.source_frame();
                return Translation::empty(self.model.members.len(), frame.len());
            }
            let parts: Vec<_> = parts.by_ref().take(*count).collect();
            Translation::from_parts(&parts, &self.model.target)
        };
        parts_of_lines.iter().map(line).collect()
    }

    /// The parts of a line, framed; none if there is nothing in it.
    fn jobs(&self, request: &Request<'_>, options: &Options) -> Vec<Job> {
        let frame = self.model.members[0].architecture.source_frame();
        let limit = self.max_source(options) - frame.len();
        let prefix = request.prefix.map(|p| self.model.target.encode(p).ids).unwrap_or_default();
        let parts = encode_parts(&self.model.source, request.text, limit);
        let with_words = parts.iter().filter(|ids| !ids.is_empty()).enumerate();
        with_words
            .map(|(i, ids)| {
                let source = frame.frame(ids);
                let prefix = if i == 0 { prefix.clone() } else { Vec::new() };
                let words = self.words(&source, &prefix, options);
                Job { source, words, prefix }
            })
            .collect()
    }

    /// Longest framed source, at least one token and its frame.
    pub(crate) fn max_source(&self, options: &Options) -> usize {
        let limits = self.model.members.iter().filter_map(|m| m.architecture.position_limit());
        let frame = self.model.members[0].architecture.source_frame().len();
        limits.fold(options.search.max_source, usize::min).max(frame + 1)
    }

    /// Target words a shortlist leaves for a sentence; a forced prefix is always allowed.
    fn words(&self, source: &[u32], prefix: &[u32], options: &Options) -> Option<Vec<u32>> {
        let shortlist = self.model.shortlist.as_ref().filter(|_| options.shortlist)?;
        let mut words = shortlist.select(source);
        words.extend(prefix);
        words.sort_unstable();
        words.dedup();
        Some(words)
    }

    pub(crate) fn settings(&self, options: &Options) -> Settings {
        Settings {
            search: options.search.clone(),
            end: self.model.target.eos(),
            unknown: self.model.target.unk(),
            scores: options.scores || options.n_best > 1,
            alignments: options.alignments,
            n_best: options.n_best,
        }
    }

    /// Runs jobs in batches of like length, on as many workers as asked for.
    pub(crate) fn run(
        &self,
        jobs: &[Job],
        settings: &Settings,
        options: &Options,
    ) -> Vec<Vec<Hypothesis>> {
        let lengths: Vec<usize> = jobs.iter().map(|job| job.source.len()).collect();
        let batches = sorted_batches(&lengths, options.batch);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(vec![Vec::new(); jobs.len()]);
        let work = || {
            let mut decoder = self.take_decoder();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let batch_jobs: Vec<Job> = batch.iter().map(|&i| jobs[i].clone()).collect();
                let translated = decoder.run(&batch_jobs, settings);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                for (&i, hypotheses) in batch.iter().zip(translated) {
                    results[i] = hypotheses;
                }
            }
            self.give_decoder_back(decoder);
        };
        let workers = options.threads.clamp(1, batches.len().max(1));
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
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
