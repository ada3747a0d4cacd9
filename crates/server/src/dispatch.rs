//! Finds languages and models of texts, coalesces equal texts and submits the others to the models'
//! services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use peregrine::document::{DocumentOptions, Format};
use peregrine::registry::{OpenModel, Pair};
use peregrine::text::{Detection, Language, detect};
use peregrine::{
    Alternative, Carry, GlossaryMode, Options, Pending, Priority, Request, Translation,
};

use crate::access::Client;
use crate::app::{App, ModelSession};
use crate::cache::{Key, SharedTranslation};
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

/// A request of at least so many bytes has bulk priority, so that it does not delay short ones.
const BULK_BYTES: usize = 20_000;

/// Texts of at least so many bytes are tokenised on a thread that may block.
const LARGE_BYTES: usize = 16 << 10;

/// The texts of a request and how to translate them.
#[derive(Debug)]
pub(crate) struct TranslationJob {
    pub(crate) texts: Vec<String>,
    /// The source language as the client names it; `None` means that it is detected for each text.
    pub(crate) from: Option<String>,
    /// The target language as the client names it.
    pub(crate) to: String,
    /// The format and options of texts with markup; `None` for plain text.
    pub(crate) markup: Option<(Format, DocumentOptions)>,
    pub(crate) wanted: Wanted,
    pub(crate) priority: Option<Priority>,
    pub(crate) timeout: Duration,
}

/// The translation of a text.
#[derive(Debug, Clone)]
pub(crate) struct Translated {
    pub(crate) translation: Arc<Translation>,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) model: String,
    pub(crate) detected: Option<Detection>,
}

impl Translated {
    pub(crate) fn text(&self) -> &str {
        self.translation.text()
    }
}

/// The languages of a text and the model that translates it.
pub(crate) struct Dispatch {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) detected: Option<Detection>,
    /// The session with the model, which the texts of a request share; `None` if both languages are
    /// the same.
    pub(crate) session: Option<Arc<ModelSession>>,
}

impl Dispatch {
    /// The name of the model; empty without one.
    pub(crate) fn model_name(&self) -> String {
        let Some(session) = &self.session else { return String::new() };
        match &session.then {
            None => session.model.name.clone(),
            Some(then) => format!("{} + {}", session.model.name, then.model.name),
        }
    }
}

impl App {
    /// Finds languages and model of each text. Models are opened if necessary.
    pub(crate) async fn dispatch(
        &self,
        client: Client,
        job: &TranslationJob,
    ) -> Outcome<Vec<Dispatch>> {
        let count = job.texts.len();
        self.access.charge(client, count, Instant::now())?;
        let to = self.language(&job.to, Side::Target)?;
        let from = job.from.as_deref().map(|from| self.language(from, Side::Source)).transpose()?;
        let mut dispatches: Vec<Dispatch> = Vec::with_capacity(count);
        for text in &job.texts {
            let (from, detected) = match &from {
                Some(from) => (from.clone(), None),
                None => {
                    let detected = self.detect_source(text, &to);
                    (detected.language.unwrap_or_default().to_owned(), Some(detected))
                }
            };
            let same = |dispatch: &&Dispatch| dispatch.from == from && dispatch.session.is_some();
            let session = match dispatches.iter().find(same) {
                _ if from == to || from.is_empty() => None,
                Some(dispatch) => dispatch.session.clone(),
                None => Some(Arc::new(self.admit(client, &from, &to, job.priority()).await?)),
            };
            dispatches.push(Dispatch { from, to: to.clone(), detected, session });
        }
        Ok(dispatches)
    }

    /// Opens a session with the model of a language pair, or with the two of a pivot translation.
    /// Refuses if the expected wait is too long.
    async fn admit(
        &self,
        client: Client,
        from: &str,
        to: &str,
        priority: Priority,
    ) -> Outcome<ModelSession> {
        let Some(route) = self.registry.route(from, to) else {
            let name =
                |code: &str| Language::find(code).map_or(code, |language| language.name).to_owned();
            let message = format!(
                "{} ({to}) is not available as a target language from {} ({from})",
                name(to),
                name(from)
            );
            return Err(Problem::new(Kind::UnknownPair, message));
        };
        let mut then = None;
        let mut wait = Duration::ZERO;
        let through = route.through.as_deref();
        let pairs =
            [Pair::new(from, through.unwrap_or(to)), Pair::new(through.unwrap_or(from), to)];
        for (name, pair) in route.models.iter().zip(pairs).rev() {
            let model = self.model(name)?;
            wait += self.expected_wait(&model, priority);
            let mut session = self.session(client, model, pair, priority);
            session.then = then.map(Box::new);
            then = Some(session);
        }
        match then {
            Some(session) if wait <= self.config.max_wait => Ok(session),
            _ => Err(Problem::busy(wait)),
        }
    }

    /// The model of that name, which is opened if it is not open.
    fn model(&self, name: &str) -> Outcome<Arc<OpenModel>> {
        if let Some(model) = self.registry.opened(name) {
            return Ok(model);
        }
        // Opening reads files and packs weights, which must not block other requests.
        let opened = tokio::task::block_in_place(|| self.registry.open(name));
        opened.map_err(|error| {
            self.log.warning(
                "a model cannot be opened",
                &[("model", name.into()), ("reason", error.to_string().into())],
            );
            Problem::new(
                Kind::Internal,
                format!("The model of this language pair cannot be used: {name}"),
            )
        })
    }

    /// Starts the translations or joins equal ones that are running.
    pub(crate) fn launch(
        self: &Arc<Self>,
        job: &TranslationJob,
        dispatches: &[Dispatch],
    ) -> Outcome<Vec<SharedTranslation>> {
        let bytes: usize = job.texts.iter().map(String::len).sum();
        let start = || {
            job.texts
                .iter()
                .zip(dispatches)
                .map(|(text, dispatch)| self.start(text, dispatch, &job.wanted))
                .collect()
        };
        match bytes < LARGE_BYTES {
            true => start(),
            false => tokio::task::block_in_place(start),
        }
    }

    pub(crate) fn start(
        self: &Arc<Self>,
        text: &str,
        dispatch: &Dispatch,
        wanted: &Wanted,
    ) -> Outcome<SharedTranslation> {
        let Some(session) = &dispatch.session else {
            return Ok(ready(Ok(unchanged(text.to_owned()))));
        };
        let languages = Arc::new([dispatch.from.clone(), dispatch.to.clone()]);
        let models = session.model_numbers();
        let key = Key { models, languages, wanted: wanted.clone(), text: text.into() };
        if self.cache.keeps() {
            if let Some(translation) = self.cache.get(&key) {
                self.metrics.cache_hits.fetch_add(1, Relaxed);
                return Ok(ready(Ok(translation)));
            }
            self.metrics.cache_misses.fetch_add(1, Relaxed);
        }
        let (shared, start) = self.cache.join_or_register(&key);
        let Some(start) = start else {
            self.metrics.coalesced.fetch_add(1, Relaxed);
            return Ok(shared);
        };
        self.metrics
            .translated(&format!("{}-{}", dispatch.from, dispatch.to), text.chars().count());
        let options = self.first_options(session, wanted);
        let request = Request::new(text).with_options(&options).with_kept(&wanted.keep);
        let request = request.between(&session.pair.from, &session.pair.to);
        let submitted = session.caller.try_submit(&request).map_err(Problem::from);
        let refused = submitted.as_ref().err().cloned();
        let (app, session, wanted) = (Arc::clone(self), Arc::clone(session), wanted.clone());
        start.with(async move {
            // The session keeps the service alive until the translation ends.
            let first = submitted?.await?;
            Ok(Arc::new(match app.submit_second(&session, &first, &wanted, false)? {
                None => first,
                Some(second) => second.await?.through(first),
            }))
        });
        refused.map_or(Ok(shared), Err)
    }

    /// Submits the translation of the first model to the second one of a pivot translation; `None`
    /// if there is only one model.
    pub(crate) fn submit_second(
        &self,
        session: &ModelSession,
        first: &Translation,
        wanted: &Wanted,
        tokens: bool,
    ) -> Outcome<Option<Pending>> {
        let Some(then) = &session.then else { return Ok(None) };
        let options = self.options(&then.model, wanted).with_glossary_mode(GlossaryMode::Mask);
        let (sentences, keep) = (first.target_sentences(), first.kept_places());
        let request = Request::new(first.text()).with_options(&options).with_kept(&keep);
        let mut request = request.with_sentences(&sentences);
        request = request.between(&then.pair.from, &then.pair.to);
        request.tokens = tokens;
        Ok(Some(then.caller.try_submit(&request)?))
    }

    /// A model's options, overridden by those of a request.
    pub(crate) fn options(&self, model: &OpenModel, wanted: &Wanted) -> Options {
        let mut options = model.service.translator().text_options();
        let carry = if wanted.carry { options.carry } else { Carry::Off };
        options.search.beam =
            wanted.beam.or(self.config.beam).unwrap_or(options.search.beam).max(wanted.n_best);
        options
            .with_n_best(wanted.n_best)
            .with_scores(wanted.scores)
            .with_alignments(wanted.alignments)
            .with_split(wanted.split)
            .with_carry(carry)
            .with_quality(wanted.quality)
            .with_glossary(wanted.terms.as_ref().map(|terms| terms.glossary.clone()))
    }

    /// The options of a session's first model.
    pub(crate) fn first_options(&self, session: &ModelSession, wanted: &Wanted) -> Options {
        let options = self.options(&session.model, wanted);
        match session.then {
            None => options,
            Some(_) => options.with_n_best(1).keeping_terms(),
        }
    }

    /// The models' code of a language.
    pub(crate) fn language(&self, name: &str, side: Side) -> Outcome<String> {
        let codes = self.codes(side);
        let unknown = || {
            let near = Language::near_misses(name);
            let near =
                near.iter().map(|language| language.code).filter(|code| codes.contains(*code));
            let near: Vec<&str> = near.collect();
            let hint = if near.is_empty() {
                String::new()
            } else {
                format!(": did you mean {}?", near.join(", "))
            };
            let shown: String = name.chars().take(40).collect();
            Problem::new(Kind::UnknownLanguage, format!("{shown} is not supported{hint}"))
        };
        // A multilingual model may have languages that are in no table.
        if let Some(code) = codes.iter().find(|code| code.eq_ignore_ascii_case(name)) {
            return Ok(code.clone());
        }
        let language = Language::find(name).ok_or_else(unknown)?;
        if codes.contains(language.code) {
            return Ok(language.code.to_owned());
        }
        // A model of Portuguese also serves Brazilian Portuguese, and the reverse.
        let base = |code: &str| code.split('-').next().unwrap_or_default().to_owned();
        let akin = |codes: &BTreeSet<String>| {
            codes.iter().find(|code| base(code) == base(language.code)).cloned()
        };
        // If only the other side has the language, the later error names the missing pair.
        akin(&codes).or_else(|| akin(&self.codes(side.other()))).ok_or_else(unknown)
    }

    /// The codes of all languages on a side.
    pub(crate) fn codes(&self, side: Side) -> BTreeSet<String> {
        match side {
            Side::Source => self.registry.sources(),
            Side::Target => self.registry.targets(),
        }
    }

    /// Detects the language of a text among those with a route to `to`. If there is only one, the
    /// result is that one.
    pub(crate) fn detect_source(&self, text: &str, to: &str) -> Detection {
        let sources = self.registry.sources();
        let to_it = sources.iter().filter(|from| self.registry.route(from, to).is_some());
        let sources: Vec<&str> = to_it.map(String::as_str).collect();
        detect(text, &sources)
    }
}

/// A side of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Target,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Source => Side::Target,
            Side::Target => Side::Source,
        }
    }
}

impl TranslationJob {
    /// The requested priority, or one by size.
    pub(crate) fn priority(&self) -> Priority {
        let bytes: usize = self.texts.iter().map(String::len).sum();
        self.priority.unwrap_or(match bytes < BULK_BYTES {
            true => Priority::Interactive,
            false => Priority::Bulk,
        })
    }
}

/// The result of some work, or an error if it is not done before the deadline.
pub(crate) async fn before<T>(
    deadline: Instant,
    work: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    let late = |_| Err(Problem::new(Kind::Deadline, "The request took longer than it may"));
    tokio::time::timeout_at(deadline.into(), work).await.unwrap_or_else(late)
}

/// A translation that equals its source.
pub(crate) fn unchanged(text: String) -> Arc<Translation> {
    let same = Alternative { text, ended: true, ..Alternative::default() };
    Arc::new(Translation { alternatives: vec![same], ..Translation::default() })
}

fn ready(made: crate::cache::Made) -> SharedTranslation {
    let making =
        Box::pin(std::future::ready(made)) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>;
    making.shared()
}
