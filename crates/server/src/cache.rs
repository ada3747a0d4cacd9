//! Translations that are remembered, and those that are being made.
//!
//! A text that is being translated for one request is not translated again for an equal one: both wait for the same
//! answer, and it is cancelled only when both have left. Finished translations are kept up to a number of bytes, the
//! least recently used go first.

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

/// What a translation is made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The numbers of the opened models; a model that is opened again has another.
    pub(crate) models: [u64; 2],
    pub(crate) wanted: Wanted,
    pub(crate) text: Arc<str>,
}

pub(crate) type Made = Result<Arc<Translation>, Problem>;
type Making = Pin<Box<dyn Future<Output = Made> + Send>>;

/// A translation that is being made. Dropping all of its clones cancels it.
pub(crate) type Flight = Shared<Making>;

/// Translations by what they are made from.
#[derive(Default)]
pub(crate) struct Cache {
    most_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flights: HashMap<Key, (u64, WeakShared<Making>)>,
    kept: HashMap<Key, (u64, Arc<Translation>)>,
    /// Keys by when they were used last.
    by_age: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
}

/// Bytes of a translation and its key, roughly.
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
    /// A cache of that many bytes.
    pub(crate) fn new(most_bytes: usize) -> Cache {
        Cache { most_bytes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether finished translations are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.most_bytes > 0
    }

    /// A finished translation.
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

    /// The translation of an equal text that is being made, or a new one: who gets a [`Start`] makes it.
    pub(crate) fn fly(self: &Arc<Self>, key: &Key) -> (Flight, Option<Start>) {
        let mut state = self.state();
        let known = state.flights.get(key).and_then(|(_, flight)| flight.upgrade());
        if let Some(flight) = known {
            return (flight, None);
        }
        state.clock += 1;
        let number = state.clock;
        let landing = Landing { cache: Arc::clone(self), key: key.clone(), number };
        let (start, started) = oneshot::channel::<Making>();
        let making = async move {
            let made = match started.await {
                Ok(making) => making.await,
                Err(_) => Err(Problem::new(Kind::Internal, "The translation was not begun")),
            };
            if let (Ok(translation), true) = (&made, landing.cache.keeps()) {
                landing.cache.put(&landing.key, translation);
            }
            made
        };
        let flight = (Box::pin(making) as Making).shared();
        if let Some(weak) = flight.downgrade() {
            state.flights.insert(key.clone(), (number, weak));
        }
        (flight, Some(Start(start)))
    }
}

/// Whoever has it makes the translation that others may be waiting for.
pub(crate) struct Start(oneshot::Sender<Making>);

impl Start {
    /// Makes the translation by this.
    pub(crate) fn with(self, making: impl Future<Output = Made> + Send + 'static) {
        // If nobody waits any more, it is dropped, and so cancelled.
        let _ = self.0.send(Box::pin(making));
    }
}

/// Takes a flight out of the list when it ends or is dropped.
struct Landing {
    cache: Arc<Cache>,
    key: Key,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        // Another flight of the same text may have begun since.
        if state.flights.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            state.flights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key { models: [1, 0], wanted: Wanted::default(), text: text.into() }
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
        let (first, start) = cache.fly(&key("a"));
        let (second, other) = cache.fly(&key("a"));
        assert!(other.is_none() && cache.fly(&key("b")).1.is_some());
        drop(first);
        start.unwrap().with(async { Ok(translation("A")) });
        let made = second.now_or_never().unwrap().unwrap();
        assert_eq!(made.text(), "A");
        assert!(cache.fly(&key("a")).1.is_some() && cache.get(&key("a")).is_some());
    }

    #[test]
    fn when_all_have_left_the_work_is_dropped() {
        let cache = Arc::new(Cache::new(0));
        let (first, start) = cache.fly(&key("a"));
        let (send, receive) = oneshot::channel::<()>();
        start.unwrap().with(async move {
            let _held = receive;
            std::future::pending().await
        });
        let (second, _) = cache.fly(&key("a"));
        drop(first);
        assert!(!send.is_closed());
        drop(second);
        assert!(send.is_closed() && cache.state().flights.is_empty());
    }

    #[test]
    fn what_is_never_begun_fails() {
        let cache = Arc::new(Cache::new(0));
        let (flight, start) = cache.fly(&key("a"));
        drop(start);
        assert!(flight.now_or_never().unwrap().is_err());
    }
}
