//! Models by language pair: opened on demand, and closed when memory runs short.

mod find;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use peregrine_model::OpenOptions;

use crate::{Compute, Error, Service, ServiceOptions, Translator};

pub use find::{find_models, languages_of};

/// A source and a target language.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The code of the source language.
    pub from: String,
    /// The code of the target language.
    pub to: String,
}

impl Pair {
    /// A pair of language codes.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Pair {
        Pair { from: from.into(), to: to.into() }
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

/// A model that a [`Registry`] may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// The name, without folders.
    pub name: String,
    /// The file or directory; `None` for the built-in model.
    pub path: Option<PathBuf>,
    /// The language pairs of the model.
    pub pairs: Vec<Pair>,
    /// The languages of a multilingual model, which translates between any two of them.
    pub languages: Vec<String>,
}

impl ModelEntry {
    /// The built-in model.
    pub fn builtin() -> ModelEntry {
        let pairs = vec![Pair::new("en", "pt")];
        ModelEntry { name: "built-in".to_owned(), path: None, pairs, languages: Vec::new() }
    }

    /// Whether the model translates a pair.
    fn translates(&self, from: &str, to: &str) -> bool {
        let has = |code: &str| self.languages.iter().any(|language| language == code);
        self.pairs.iter().any(|pair| pair.from == from && pair.to == to)
            || (from != to && has(from) && has(to))
    }

    /// The pairs that the model translates.
    fn all_pairs(&self) -> Vec<Pair> {
        let mut pairs = self.pairs.clone();
        for from in &self.languages {
            let others = self.languages.iter().filter(|to| *to != from);
            pairs.extend(others.map(|to| Pair::new(from, to)));
        }
        pairs
    }

    /// The modification time of the newest file.
    fn written(&self) -> Option<SystemTime> {
        let path = self.path.as_ref()?;
        let times = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
        let inside = path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        inside.chain([path.clone()]).filter_map(|path| times(&path)).max()
    }
}

/// The models that translate a pair, in sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The names of one or two models.
    pub models: Vec<String>,
    /// The code of the pivot language, if there are two models.
    pub through: Option<String>,
}

/// The options of a registry.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// How products are computed.
    pub compute: Compute,
    /// The number of workers of each model; by default chosen by the device.
    pub threads: Option<usize>,
    /// The memory limit of the process in bytes. Weights may take three quarters of it; beyond that
    /// the least recently used models are closed.
    pub memory: Option<u64>,
}

/// An open model.
pub struct OpenModel {
    /// The name of the model's entry.
    pub name: String,
    /// A number that is unique among the open models of this process.
    pub number: u64,
    /// The running service.
    pub service: Arc<Service>,
}

/// The state of an entry.
enum State {
    Closed,
    Open(Arc<OpenModel>),
    /// It cannot be opened, for this reason. It is tried again when its files change.
    Unusable(String),
}

struct Slot {
    entry: ModelEntry,
    written: Option<SystemTime>,
    state: Mutex<State>,
    last_use: AtomicU64,
}

/// Models by language pair.
///
/// ```
/// use peregrine::registry::{ModelEntry, Registry, RegistryOptions};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let registry = Registry::new(vec![ModelEntry::builtin()], RegistryOptions::default());
/// let model = registry.find("en", "pt").map(|name| registry.open(&name)).unwrap()?;
/// assert_eq!(model.service.translate("Two dogs play in the snow.")?, "Dois cães brincam na neve.");
/// assert_eq!(registry.find("pt", "en"), None);
/// # Ok::<(), peregrine::Error>(())
/// ```
pub struct Registry {
    slots: RwLock<Vec<Arc<Slot>>>,
    options: RegistryOptions,
    uses: AtomicU64,
    opened: AtomicU64,
}

/// The state of a model in a registry.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelState {
    /// The entry.
    pub entry: ModelEntry,
    /// The model, if it is open.
    pub open: Option<Arc<OpenModel>>,
    /// The reason why it cannot be opened, if known.
    pub problem: Option<String>,
}

impl Registry {
    /// A registry of these models. If several translate a pair, the first one is used.
    pub fn new(entries: Vec<ModelEntry>, options: RegistryOptions) -> Registry {
        let registry = Registry {
            slots: RwLock::default(),
            options,
            uses: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        };
        registry.replace(entries);
        registry
    }

    /// Replaces the list of models. Those whose files have not changed stay open; running requests
    /// of the others finish with the old model.
    pub fn replace(&self, entries: Vec<ModelEntry>) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *slots);
        *slots = entries
            .into_iter()
            .map(|entry| {
                let written = entry.written();
                let same = |slot: &&Arc<Slot>| slot.entry == entry && slot.written == written;
                before.iter().find(same).cloned().unwrap_or_else(|| {
                    let state = Mutex::new(State::Closed);
                    Arc::new(Slot { entry, written, state, last_use: AtomicU64::new(0) })
                })
            })
            .collect();
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The codes of all source languages.
    pub fn sources(&self) -> BTreeSet<String> {
        self.codes(|pair| &pair.from)
    }

    /// The codes of all target languages.
    pub fn targets(&self) -> BTreeSet<String> {
        self.codes(|pair| &pair.to)
    }

    fn codes(&self, of: impl Fn(&Pair) -> &String) -> BTreeSet<String> {
        let mut codes = BTreeSet::new();
        for slot in self.slots() {
            codes.extend(slot.entry.pairs.iter().map(|pair| of(pair).clone()));
            codes.extend(slot.entry.languages.iter().cloned());
        }
        codes
    }

    /// The name of the model that translates a pair.
    pub fn find(&self, from: &str, to: &str) -> Option<String> {
        let slots = self.slots();
        let slot = slots.iter().find(|slot| slot.entry.translates(from, to));
        slot.map(|slot| slot.entry.name.clone())
    }

    /// The route of a pair: one model, or two with a pivot language, English preferred.
    pub fn route(&self, from: &str, to: &str) -> Option<Route> {
        if let Some(model) = self.find(from, to) {
            return Some(Route { models: vec![model], through: None });
        }
        let mut pivots: Vec<String> = Vec::new();
        for slot in self.slots() {
            for pair in &slot.entry.pairs {
                pivots.extend((pair.to == to).then(|| pair.from.clone()));
                pivots.extend((pair.from == from).then(|| pair.to.clone()));
            }
        }
        pivots.sort_by_key(|code| (code != "en", code.clone()));
        pivots.into_iter().filter(|_| from != to).find_map(|through| {
            let models = vec![self.find(from, &through)?, self.find(&through, to)?];
            Some(Route { models, through: Some(through) })
        })
    }

    /// The route of every pair that can be translated: by one model, or by two with a pivot
    /// language, English preferred.
    ///
    /// ```
    /// use peregrine::registry::{ModelEntry, Pair, Registry, RegistryOptions};
    ///
    /// let model = |from, to| ModelEntry {
    ///     name: format!("{from}{to}"),
    ///     path: Some("model".into()),
    ///     pairs: vec![Pair::new(from, to)],
    ///     languages: Vec::new(),
    /// };
    /// let registry = Registry::new(vec![model("zh", "en"), model("en", "pt")], RegistryOptions::default());
    /// let routes = registry.routes();
    /// assert_eq!(routes[&Pair::new("zh", "pt")].models, ["zhen", "enpt"]);
    /// assert_eq!(routes[&Pair::new("zh", "pt")].through.as_deref(), Some("en"));
    /// assert_eq!(routes[&Pair::new("en", "pt")].models, ["enpt"]);
    /// assert_eq!(routes.len(), 3);
    /// ```
    pub fn routes(&self) -> BTreeMap<Pair, Route> {
        let mut routes = BTreeMap::new();
        for slot in self.slots() {
            for pair in slot.entry.all_pairs() {
                let direct = Route { models: vec![slot.entry.name.clone()], through: None };
                routes.entry(pair).or_insert(direct);
            }
        }
        let (sources, targets) = (self.sources(), self.targets());
        for (from, to) in sources.iter().flat_map(|from| targets.iter().map(move |to| (from, to))) {
            let pair = Pair::new(from, to);
            if let Some(route) =
                (!routes.contains_key(&pair)).then(|| self.route(from, to)).flatten()
            {
                routes.insert(pair, route);
            }
        }
        routes
    }

    /// The model of that name, if it is open.
    pub fn opened(&self, name: &str) -> Option<Arc<OpenModel>> {
        let slots = self.slots();
        let slot = slots.iter().find(|slot| slot.entry.name == name)?;
        slot.last_use.store(self.uses.fetch_add(1, Relaxed) + 1, Relaxed);
        match &*slot.state() {
            State::Open(model) => Some(Arc::clone(model)),
            _ => None,
        }
    }

    /// Opens the model of that name, if it is not open. This may take seconds.
    pub fn open(&self, name: &str) -> Result<Arc<OpenModel>, Error> {
        let slots = self.slots();
        let unusable = |reason: String| Error::Unusable { name: name.to_owned(), reason };
        let slot = slots.iter().find(|slot| slot.entry.name == name);
        let slot = slot.ok_or_else(|| unusable("there is no such model".to_owned()))?;
        slot.last_use.store(self.uses.fetch_add(1, Relaxed) + 1, Relaxed);
        // Other requests for this model wait here until it is open.
        let mut state = slot.state();
        match &*state {
            State::Open(model) => return Ok(Arc::clone(model)),
            State::Unusable(reason) => return Err(unusable(reason.clone())),
            State::Closed => {}
        }
        match self.open_entry(&slot.entry) {
            Ok(model) => {
                let model = Arc::new(model);
                *state = State::Open(Arc::clone(&model));
                drop(state);
                self.close_surplus(&slots, slot);
                Ok(model)
            }
            Err(error) => {
                *state = State::Unusable(error.to_string());
                Err(unusable(error.to_string()))
            }
        }
    }

    fn open_entry(&self, entry: &ModelEntry) -> Result<OpenModel, Error> {
        let model = match &entry.path {
            None => crate::builtin_model()?,
            Some(path) => {
                peregrine_model::open(std::slice::from_ref(path), &OpenOptions::default())?
            }
        };
        let translator = Translator::prepare(model, &self.options.compute)?;
        let threads = self.options.threads.unwrap_or_else(|| translator.auto_threads());
        let memory = self.options.memory.filter(|_| !translator.is_on_gpu());
        let workers = translator.workers().with_threads(threads).with_memory(memory);
        let service = Service::new(&translator, &ServiceOptions::new(workers));
        let number = self.opened.fetch_add(1, Relaxed) + 1;
        Ok(OpenModel { name: entry.name.clone(), number, service: Arc::new(service) })
    }

    /// Closes the least recently used models until the weights fit, except the one just opened.
    fn close_surplus(&self, slots: &[Arc<Slot>], kept: &Arc<Slot>) {
        let Some(memory) = self.options.memory else { return };
        let bytes = |slot: &Arc<Slot>| match &*slot.state() {
            State::Open(model) => model.service.translator().weight_bytes(),
            _ => 0,
        };
        let mut all: u64 = slots.iter().map(bytes).sum();
        let mut others: Vec<_> = slots.iter().filter(|slot| !Arc::ptr_eq(slot, kept)).collect();
        others.sort_by_key(|slot| slot.last_use.load(Relaxed));
        for slot in others {
            if all <= memory / 4 * 3 {
                return;
            }
            all -= bytes(slot);
            let mut state = slot.state();
            if matches!(*state, State::Open(_)) {
                *state = State::Closed;
            }
        }
    }

    /// The state of every model.
    pub fn models(&self) -> Vec<ModelState> {
        let state = |slot: &Arc<Slot>| {
            let (open, problem) = match slot.state.try_lock().as_deref() {
                Ok(State::Open(model)) => (Some(Arc::clone(model)), None),
                Ok(State::Unusable(reason)) => (None, Some(reason.clone())),
                // It is being opened.
                Ok(State::Closed) | Err(_) => (None, None),
            };
            ModelState { entry: slot.entry.clone(), open, problem }
        };
        self.slots().iter().map(state).collect()
    }
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for OpenModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("models", &self.models()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "builtin"))]
mod tests {
    use super::*;

    fn named(name: &str) -> ModelEntry {
        ModelEntry { name: name.to_owned(), ..ModelEntry::builtin() }
    }

    fn open_names(registry: &Registry) -> Vec<String> {
        let open = registry.models().into_iter().filter_map(|state| state.open);
        open.map(|model| model.name.clone()).collect()
    }

    #[test]
    fn the_least_recently_used_are_closed() {
        let options = RegistryOptions { threads: Some(1), ..RegistryOptions::default() };
        let one = Registry::new(vec![named("a")], options.clone()).open("a").unwrap();
        let bytes = one.service.translator().weight_bytes();
        assert!(bytes > 1 << 20);
        let memory = Some(bytes * 2 * 4 / 3 + 16);
        let options = RegistryOptions { memory, ..options };
        let registry = Registry::new(["a", "b", "c"].map(named).to_vec(), options);
        let a = registry.open("a").unwrap();
        registry.open("b").unwrap();
        registry.open("a").unwrap();
        registry.open("c").unwrap();
        assert_eq!(open_names(&registry), ["a", "c"]);
        // A closed model finishes its requests.
        registry.open("c").unwrap();
        registry.open("b").unwrap();
        assert_eq!(open_names(&registry), ["b", "c"]);
        assert_eq!(
            a.service.translate("Two dogs play in the snow.").unwrap(),
            "Dois cães brincam na neve."
        );
    }

    #[test]
    fn a_model_that_cannot_be_opened_is_named_and_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken.peregrine");
        std::fs::write(&path, b"not a model").unwrap();
        let broken = ModelEntry {
            name: "broken".to_owned(),
            path: Some(path.clone()),
            pairs: vec![Pair::new("de", "en")],
            languages: Vec::new(),
        };
        let entries = vec![broken, ModelEntry::builtin()];
        let registry = Registry::new(entries.clone(), RegistryOptions::default());
        let error = registry.open("broken").unwrap_err().to_string();
        assert!(error.starts_with("broken: "), "{error}");
        assert_eq!(registry.open("broken").unwrap_err().to_string(), error);
        assert!(registry.open("built-in").is_ok() && registry.open("other").is_err());
        let number = registry.open("built-in").unwrap().number;
        registry.replace(entries);
        assert_eq!(registry.open("built-in").unwrap().number, number);
    }
}
