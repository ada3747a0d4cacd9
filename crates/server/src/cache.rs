//! The cache of finished translations, and the coalescing of equal running ones.
//!
//! A text that is being translated for one request is not translated again for an equal one: both
//! wait for the same result, which is cancelled only when both have left. Finished translations are
//! cached up to a number of bytes; the least recently used are evicted first.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use peregrine::Translation;
use tokio::sync::oneshot;

use crate::problem::{Kind, Problem};
use crate::wanted::Wanted;

/// Everything that a translation depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The numbers of the open models; a model that is opened again gets a new number.
    pub(crate) models: [u64; 2],
    /// The languages, which a multilingual model is told.
    pub(crate) languages: Arc<[String; 2]>,
    pub(crate) wanted: Wanted,
    pub(crate) text: Arc<str>,
}

pub(crate) type Made = Result<Arc<Translation>, Problem>;
type Making = Pin<Box<dyn Future<Output = Made> + Send>>;

/// A running translation that equal requests share. Dropping all of its clones cancels it.
pub(crate) type SharedTranslation = Shared<Making>;

/// Finished and running translations by key.
#[derive(Default)]
pub(crate) struct Cache {
    most_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: HashMap<Key, (u64, WeakShared<Making>)>,
    kept: HashMap<Key, (u64, Arc<Translation>)>,
    /// Keys by time of last use.
    by_age: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
}

/// The approximate number of bytes of a translation and its key.
fn weight(key: &Key, translation: &Translation) -> usize {
    let token = |tokens: &Vec<String>| tokens.iter().map(|token| token.len() + 24).sum::<usize>();
    let alternatives = translation.alternatives.iter().map(|a| {
        a.text.len() + token(&a.tokens) + 16 * a.token_ranges.len() + 4 * a.token_scores.len() + 200
    });
    let sentences = translation.sentences.iter().map(|sentence| {
        let row = |row: &Vec<f32>| 4 * row.len() + 24;
        let targets =
            sentence.targets.iter().map(|t| t.alignment.iter().map(row).sum::<usize>() + 120);
        32 * sentence.source_tokens.len() + 200 + targets.sum::<usize>()
    });
    2 * key.text.len() + 300 + alternatives.sum::<usize>() + sentences.sum::<usize>()
}

impl Cache {
    /// A cache of at most that many bytes.
    pub(crate) fn new(most_bytes: usize) -> Cache {
        Cache { most_bytes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether finished translations are cached.
    pub(crate) fn keeps(&self) -> bool {
        self.most_bytes > 0
    }

    /// A cached translation.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Translation>> {
        let mut state = self.state();
        state.clock += 1;
        let now = state.clock;
        let (age, translation) = state.kept.get_mut(key)?;
        let before = std::mem::replace(age, now);
        let translation = Arc::clone(translation);
        state.by_age.remove(&before);
        state.by_age.insert(now, key.clone());
        Some(translation)
    }

    fn put(&self, key: &Key, translation: &Arc<Translation>) {
        let bytes = weight(key, translation);
        if bytes > self.most_bytes / 4 {
            return;
        }
        let mut state = self.state();
        state.clock += 1;
        let now = state.clock;
        if let Some((age, old)) = state.kept.insert(key.clone(), (now, Arc::clone(translation))) {
            state.by_age.remove(&age);
            state.bytes -= weight(key, &old);
        }
        state.by_age.insert(now, key.clone());
        state.bytes += bytes;
        while state.bytes > self.most_bytes {
            let Some((_, oldest)) = state.by_age.pop_first() else { break };
            if let Some((_, old)) = state.kept.remove(&oldest) {
                state.bytes -= weight(&oldest, &old);
            }
        }
    }

    /// Joins the running translation with this key, or registers a new one, which the caller runs
    /// with [`Start`].
    pub(crate) fn join_or_register(
        self: &Arc<Self>,
        key: &Key,
    ) -> (SharedTranslation, Option<Start>) {
        let mut state = self.state();
        let known = state.running.get(key).and_then(|(_, shared)| shared.upgrade());
        if let Some(shared) = known {
            return (shared, None);
        }
        state.clock += 1;
        let number = state.clock;
        let entry = RemoveOnDrop { cache: Arc::clone(self), key: key.clone(), number };
        let (start, started) = oneshot::channel::<Making>();
        let making = async move {
            let made = match started.await {
                Ok(making) => making.await,
                Err(_) => Err(Problem::new(Kind::Internal, "The translation was not begun")),
            };
            if let (Ok(translation), true) = (&made, entry.cache.keeps()) {
                entry.cache.put(&entry.key, translation);
            }
            made
        };
        let shared = (Box::pin(making) as Making).shared();
        if let Some(weak) = shared.downgrade() {
            state.running.insert(key.clone(), (number, weak));
        }
        (shared, Some(Start(start)))
    }
}

/// The right and duty to run a translation that others may be waiting for.
pub(crate) struct Start(oneshot::Sender<Making>);

impl Start {
    /// Runs the translation by this future.
    pub(crate) fn with(self, making: impl Future<Output = Made> + Send + 'static) {
        // If no request waits any more, the future is dropped and thereby cancelled.
        let _ = self.0.send(Box::pin(making));
    }
}

/// Removes a running translation from the map when it ends or is dropped.
struct RemoveOnDrop {
    cache: Arc<Cache>,
    key: Key,
    number: u64,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        // A new translation with the same key may have started since.
        if state.running.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            state.running.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        let languages = Arc::new(["en", "pt"].map(String::from));
        Key { models: [1, 0], languages, wanted: Wanted::default(), text: text.into() }
    }

    fn translation(text: &str) -> Arc<Translation> {
        let best = peregrine::Alternative { text: text.to_owned(), ..Default::default() };
        Arc::new(Translation { alternatives: vec![best], ..Default::default() })
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let cache = Cache::new(8 * weight(&key("a"), &translation("A")));
        for text in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            cache.put(&key(text), &translation(text));
        }
        assert!(cache.get(&key("a")).is_some());
        cache.put(&key("i"), &translation("i"));
        assert!(cache.get(&key("a")).is_some() && cache.get(&key("b")).is_none());
        cache.put(&key("a"), &translation("B"));
        assert_eq!(cache.get(&key("a")).unwrap().text(), "B");
        let state = cache.state();
        assert_eq!((state.kept.len(), state.by_age.len()), (8, 8));
    }

    #[test]
    fn equal_texts_fly_together_and_land_once() {
        let cache = Arc::new(Cache::new(1 << 20));
        let (first, start) = cache.join_or_register(&key("a"));
        let (second, other) = cache.join_or_register(&key("a"));
        assert!(other.is_none() && cache.join_or_register(&key("b")).1.is_some());
        drop(first);
        start.unwrap().with(async { Ok(translation("A")) });
        let made = second.now_or_never().unwrap().unwrap();
        assert_eq!(made.text(), "A");
        assert!(cache.join_or_register(&key("a")).1.is_some() && cache.get(&key("a")).is_some());
    }

    #[test]
    fn when_all_have_left_the_work_is_dropped() {
        let cache = Arc::new(Cache::new(0));
        let (first, start) = cache.join_or_register(&key("a"));
        let (send, receive) = oneshot::channel::<()>();
        start.unwrap().with(async move {
            let _held = receive;
            std::future::pending().await
        });
        let (second, _) = cache.join_or_register(&key("a"));
        drop(first);
        assert!(!send.is_closed());
        drop(second);
        assert!(send.is_closed() && cache.state().running.is_empty());
    }

    #[test]
    fn what_is_never_begun_fails() {
        let cache = Arc::new(Cache::new(0));
        let (shared, start) = cache.join_or_register(&key("a"));
        drop(start);
        assert!(shared.now_or_never().unwrap().is_err());
    }
}
