//! How to translate: options of a request, and options of the workers.

use std::sync::Arc;

use peregrine_decode::Guard;
use peregrine_decode::batching::{BatchSize, Batching, ENCODE_TOKENS, Policy, Scope};
use peregrine_model::Search;
use peregrine_text::{Glossary, Split};

use crate::{Carry, Dictionary, GlossaryMode};

/// How a text is translated. [`Translator::options`](crate::Translator::options) gives those of the
/// model's own configuration. Requests with different options run in the same batch, and none
/// changes another one's translation.
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let options = translator.options().with_beam(4).with_n_best(2);
/// assert_eq!((options.search.beam, options.n_best), (4, 2));
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The search settings.
    pub search: Search,
    /// The number of translations of each sentence.
    pub n_best: usize,
    /// Whether scores are wanted.
    pub scores: bool,
    /// Whether attention to the source is wanted.
    pub alignments: bool,
    /// Whether the model's shortlist, if it has one, limits the words.
    pub shortlist: bool,
    /// How a line is split into sentences.
    pub split: Split,
    /// The dictionary for replacing unknown words: each becomes the source word it attends to, or that word's
    /// translation in the dictionary. None replaces none.
    pub replace_unknown: Option<Arc<Dictionary>>,
    /// The guard against runaway output; none by default, as in the original tools.
    pub guard: Option<Guard>,
    /// Whether a sentence that is too long for the model is an error
    /// ([`Error::TooLong`](crate::Error::TooLong)). Otherwise it is cut.
    pub refuse_long: bool,
    /// Whether only the texts of translations are wanted: they have no [tokens](crate::Alternative::tokens) then, which takes less
    /// time.
    pub text_only: bool,
    /// Whether what the model cannot spell is carried through the translation.
    pub carry: Carry,
    /// How certain terms are to be translated.
    pub glossary: Option<Glossary>,
    /// How the terms of the glossary get into the translation.
    pub glossary_mode: GlossaryMode,
    /// Whether translations are judged: [`Quality`](crate::Quality) of texts, sentences and words.
    pub quality: bool,
    /// The language of the texts, for multilingual models.
    pub from: Option<Arc<str>>,
    /// The language of the translations, for multilingual models.
    pub to: Option<Arc<str>>,
    /// Whether texts and prefixes are tokens of the vocabularies with blanks between them, and not text. See
    /// [`Self::of_tokens`].
    pub(crate) tokens: bool,
}

impl Options {
    /// Default options with these search settings.
    pub fn new(search: Search) -> Options {
        Options {
            search,
            n_best: 1,
            scores: false,
            alignments: false,
            shortlist: true,
            split: Split::None,
            replace_unknown: None,
            guard: None,
            refuse_long: false,
            text_only: false,
            carry: Carry::Off,
            glossary: None,
            glossary_mode: GlossaryMode::default(),
            quality: false,
            from: None,
            to: None,
            tokens: false,
        }
    }

    /// The same options between two languages. A request may name others, and a model of one pair ignores them.
    pub fn between(self, from: &str, to: &str) -> Options {
        Options { from: Some(from.into()), to: Some(to.into()), ..self }
    }

    /// The same options with another beam.
    pub fn with_beam(mut self, beam: usize) -> Options {
        self.search.beam = beam;
        self
    }

    /// The same options with that many translations of each sentence.
    pub fn with_n_best(self, n_best: usize) -> Options {
        Options { n_best, ..self }
    }

    /// The same options with or without scores.
    pub fn with_scores(self, scores: bool) -> Options {
        Options { scores, ..self }
    }

    /// The same options with or without attention to the source.
    pub fn with_alignments(self, alignments: bool) -> Options {
        Options { alignments, ..self }
    }

    /// The same options with or without the model's shortlist.
    pub fn with_shortlist(self, shortlist: bool) -> Options {
        Options { shortlist, ..self }
    }

    /// The same options with another way to split lines.
    pub fn with_split(self, split: Split) -> Options {
        Options { split, ..self }
    }

    /// The same options with carry-through or without.
    pub fn with_carry(self, carry: Carry) -> Options {
        Options { carry, ..self }
    }

    /// The same options with a glossary or without. Clones of a glossary share their entries.
    ///
    /// ```
    /// use peregrine::{Entry, Glossary, How, Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let glossary = Glossary::new([Entry::new("dogs", "cachorros")])?;
    /// let options = translator.options().with_glossary(Some(glossary));
    /// let request = Request::new("Two dogs play in the snow.");
    /// let translation = translator.translate_batch(&[request], &options)?.remove(0);
    /// assert!(translation.text().starts_with("Dois cachorros"));
    /// assert_eq!(translation.terms[0].how, How::Constrained);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_glossary(self, glossary: Option<Glossary>) -> Options {
        Options { glossary, ..self }
    }

    /// The same options with another way of terms into a translation.
    pub fn with_glossary_mode(self, glossary_mode: GlossaryMode) -> Options {
        Options { glossary_mode, ..self }
    }

    /// The same options with translations judged or not.
    pub fn with_quality(self, quality: bool) -> Options {
        Options { quality, ..self }
    }

    /// The same options for tokens: texts, prefixes and given translations are tokens of the model's vocabularies with blanks (U+0020)
    /// between them. What no vocabulary has is the unknown word. Nothing is split, carried through or looked up in a glossary.
    /// [`Alternative::tokens`](crate::Alternative::tokens) has the tokens of a translation.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let text = "Two dogs play in the snow.";
    /// let source = &translator.model().source;
    /// let tokens: Vec<&str> = source.encode(text).ids.into_iter().map(|id| source.token(id)).collect();
    /// let options = translator.options().of_tokens();
    /// let translation = translator.translate_batch(&[Request::new(&tokens.join(" "))], &options)?.remove(0);
    /// assert_eq!(translation.text(), translator.translate(text)?);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn of_tokens(self) -> Options {
        let (split, carry) = (Split::None, Carry::Off);
        Options { tokens: true, split, carry, glossary: None, ..self }
    }

    /// The same options with or without a guard against runaway output.
    pub fn with_guard(self, guard: Option<Guard>) -> Options {
        Options { guard, ..self }
    }
}

/// The workers: threads, batches and memory. Of these only
/// [`shortlist_scope`](Self::shortlist_scope) changes translations. [`Translator::workers`](crate::Translator::workers)
/// gives defaults for the device.
///
/// ```
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = peregrine::Translator::builtin()?;
/// let workers = translator.workers().with_threads(2);
/// assert_eq!(workers.threads, 2);
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Workers {
    /// The number of worker threads, each translating a batch at a time.
    pub threads: usize,
    /// The number of threads that share the products of a worker, for latency; 1 splits none.
    pub threads_per_sentence: usize,
    /// The batch size of a worker.
    pub batch: BatchSize,
    /// The batching policy.
    pub batching: Policy,
    /// The share of the batch that may still be running when it is refilled, for policies that refill one.
    pub top_up_threshold: Option<f32>,
    /// The most source tokens encoded together.
    pub encode_tokens: usize,
    /// Whether shortlists are a sentence's own or shared by a batch. A [`Service`](crate::Service) always has
    /// [`Scope::Sentence`].
    pub shortlist_scope: Scope,
    /// The bytes that the whole process may use, the model included, while texts are streamed or a service
    /// runs. It bounds the waiting texts and sizes the batch.
    pub memory: Option<u64>,
}

impl Default for Workers {
    /// One thread with a batch size for a CPU.
    fn default() -> Workers {
        Workers {
            threads: 1,
            threads_per_sentence: 1,
            batch: BatchSize { sentences: 64, tokens: 4096 },
            batching: Policy::Auto,
            top_up_threshold: None,
            encode_tokens: ENCODE_TOKENS,
            shortlist_scope: Scope::Sentence,
            memory: None,
        }
    }
}

impl Workers {
    /// The same workers with that many threads.
    pub fn with_threads(self, threads: usize) -> Workers {
        Workers { threads, ..self }
    }

    /// The same workers with another batch size.
    pub fn with_batch(self, batch: BatchSize) -> Workers {
        Workers { batch, ..self }
    }

    /// The same workers with another policy.
    pub fn with_batching(self, batching: Policy) -> Workers {
        Workers { batching, ..self }
    }

    /// The same workers within that many bytes.
    pub fn with_memory(self, memory: Option<u64>) -> Workers {
        Workers { memory, ..self }
    }

    /// The batching policy with its numbers.
    pub(crate) fn batching(&self) -> Batching {
        Batching {
            top_up_threshold: self.top_up_threshold,
            encode_tokens: self.encode_tokens,
            scope: self.shortlist_scope,
            ..Batching::new(self.batching, self.batch)
        }
    }
}
