//! The state that all requests share.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use peregrine::registry::{ModelEntry, OpenModel, Pair, Registry, RegistryOptions, find_models};
use peregrine::text::Language;
use peregrine::{Caller, Priority, Service};

use crate::access::{Access, Client};
use crate::cache::Cache;
use crate::config::{Config, ConfigError, NamedModel};
use crate::files::Files;
use crate::glossaries::Glossaries;
use crate::log::Log;
use crate::metrics::Metrics;

/// The default share of free memory that the process uses, as a fraction.
const USUAL_SHARE: (u64, u64) = (3, 4);

/// The interval at which a model's speed is sampled.
const PACE_EVERY: Duration = Duration::from_millis(200);

/// A caller of a service, shared by the requests of one client.
type SharedCaller = Caller<Arc<Service>>;

/// A request's access to a model: the model and a caller of its service. Both live at least as long
/// as the request, and so does the client's shared caller.
pub(crate) struct ModelSession {
    pub(crate) model: Arc<OpenModel>,
    /// The languages between which the model translates.
    pub(crate) pair: Pair,
    pub(crate) caller: SharedCaller,
    /// The second model of a pivot translation.
    pub(crate) then: Option<Box<ModelSession>>,
    _shared: Arc<SharedCaller>,
}

impl ModelSession {
    /// The numbers of the models, 0 for none.
    pub(crate) fn model_numbers(&self) -> [u64; 2] {
        [self.model.number, self.then.as_ref().map_or(0, |then| then.model.number)]
    }
}

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) access: Access,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Metrics,
    pub(crate) files: Files,
    pub(crate) glossaries: Glossaries,
    pub(crate) log: Log,
    /// Whether the models are open and warm.
    pub(crate) ready: AtomicBool,
    /// Whether the server is shutting down.
    pub(crate) stopping: AtomicBool,
    callers: Mutex<HashMap<(Client, u64, Priority), Weak<SharedCaller>>>,
    paces: Mutex<HashMap<u64, Pace>>,
}

/// The throughput of a model while its queue is not empty.
struct Pace {
    finished: u64,
    at: Instant,
    /// Whether the queue was not empty at the last sample.
    busy: bool,
    /// Sentences a second; `None` until the model has been busy for a while.
    rate: Option<f64>,
}

impl App {
    pub(crate) fn new(config: Config) -> Result<App, ConfigError> {
        let log = Log::new(config.log);
        let entries = entries(&config, &log)?;
        let free = peregrine::available_memory();
        let memory = config.memory.or(free.map(|bytes| bytes / USUAL_SHARE.1 * USUAL_SHARE.0));
        let compute = config.compute()?;
        let options = RegistryOptions { compute, threads: config.threads, memory };
        Ok(App {
            access: Access::new(&config)?,
            registry: Registry::new(entries, options),
            cache: Arc::new(Cache::new(config.cache)),
            metrics: Metrics::default(),
            files: Files::default(),
            glossaries: Glossaries::open(config.glossaries.as_deref())?,
            log,
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            callers: Mutex::default(),
            paces: Mutex::default(),
            config,
        })
    }

    /// Reads the list of models again.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        self.registry.replace(entries(&self.config, &self.log)?);
        Ok(())
    }

    /// Opens a session of a client's request with a model. The queue serves clients in turns, and
    /// the requests of a client in turns.
    pub(crate) fn session(
        &self,
        client: Client,
        model: Arc<OpenModel>,
        pair: Pair,
        priority: Priority,
    ) -> ModelSession {
        let shared = self.shared_caller(client, &model, priority);
        ModelSession { model, pair, caller: shared.beside(), then: None, _shared: shared }
    }

    fn shared_caller(
        &self,
        client: Client,
        model: &OpenModel,
        priority: Priority,
    ) -> Arc<SharedCaller> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (client, model.number, priority);
        if let Some(caller) = callers.get(&key).and_then(Weak::upgrade) {
            return caller;
        }
        if callers.len() >= 1024 {
            callers.retain(|_, caller| caller.strong_count() > 0);
        }
        let caller = Arc::new(model.service.shared_caller(priority));
        callers.insert(key, Arc::downgrade(&caller));
        caller
    }

    /// The expected time that a new request of that priority waits for a slot in the batch.
    pub(crate) fn expected_wait(&self, model: &OpenModel, priority: Priority) -> Duration {
        let [interactive, bulk] = Priority::ALL.map(|priority| model.service.queue_depth(priority));
        let waiting = match priority {
            Priority::Interactive => interactive,
            Priority::Bulk => interactive + bulk,
        };
        match self.pace(model, interactive + bulk > 0) {
            Some(rate) if waiting > 0 => {
                Duration::from_secs_f64((waiting as f64 / rate.max(0.01)).min(1e6))
            }
            _ => Duration::ZERO,
        }
    }

    /// Sentences a second, averaged over about the last second with a non-empty queue.
    fn pace(&self, model: &OpenModel, busy: bool) -> Option<f64> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let finished = model.service.finished();
        let fresh = Pace { finished, at: now, busy, rate: None };
        let pace = paces.entry(model.number).or_insert(fresh);
        let time = now.duration_since(pace.at);
        if time < PACE_EVERY {
            return pace.rate;
        }
        if pace.busy && busy {
            let seen = (finished - pace.finished) as f64 / time.as_secs_f64();
            pace.rate = Some(pace.rate.map_or(seen, |rate| 0.7 * rate + 0.3 * seen));
        }
        *pace = Pace { finished, at: now, busy, rate: pace.rate };
        pace.rate
    }
}

/// The registry entries of the configured models.
fn entries(config: &Config, log: &Log) -> Result<Vec<ModelEntry>, ConfigError> {
    let mut entries = config.model.iter().map(named_entry).collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &config.models {
        let place = || folder.display().to_string();
        let found =
            find_models(folder).map_err(|error| ConfigError::new(place(), error.to_string()));
        let (models, left_out) = found?;
        left_out.iter().for_each(|reason| log.warning(reason, &[]));
        if models.is_empty() && entries.is_empty() {
            return Err(ConfigError::new(
                place(),
                "there is no model in it whose languages are known",
            ));
        }
        entries.extend(models);
    }
    if entries.is_empty() {
        entries.push(ModelEntry::builtin());
    }
    // Names must be unique: the second of two equal ones gets a number.
    for index in 1..entries.len() {
        let (before, rest) = entries.split_at_mut(index);
        let name = rest[0].name.clone();
        let mut number = 1;
        while before.iter().any(|entry| entry.name == rest[0].name) {
            number += 1;
            rest[0].name = format!("{name} ({number})");
        }
    }
    Ok(entries)
}

fn named_entry(model: &NamedModel) -> Result<ModelEntry, ConfigError> {
    let place = || format!("--model {}", model.path.display());
    if !model.path.exists() {
        return Err(ConfigError::new(place(), "there is no such file or directory"));
    }
    let name = model.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match &model.pair {
        Some((from, to)) => {
            let code = |code: &str| {
                let language = Language::find(code)
                    .ok_or_else(|| ConfigError::new(place(), format!("{code:?} is no language")))?;
                Ok(language.code)
            };
            let pairs = vec![Pair::new(code(from)?, code(to)?)];
            Ok(ModelEntry { name, path: Some(model.path.clone()), pairs, languages: Vec::new() })
        }
        None => ModelEntry::of(name, &model.path).ok_or_else(|| {
            ConfigError::new(
                place(),
                "its languages are not known: write them before the path, as in --model en-de=PATH",
            )
        }),
    }
}
