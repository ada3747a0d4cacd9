//! Translating for any dialect: languages are found, equal texts join, everything else meets in the models' running
//! batches.

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
use crate::app::{App, Turn};
use crate::cache::{Flight, Key};
use crate::documents::read_texts;
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

/// Characters from which on a request counts as bulk, so that it does not hold up short ones.
const BULK_CHARACTERS: usize = 20_000;

/// Bytes from which on texts are tokenised on a thread that may block.
const LARGE_BYTES: usize = 16 << 10;

/// Texts to translate.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) texts: Vec<String>,
    /// The language of the texts as the client calls it; none is detected for each.
    pub(crate) from: Option<String>,
    /// The language to translate to as the client calls it.
    pub(crate) to: String,
    /// The kind of documents that the texts are, and how they are read, if they are any.
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

/// How a text gets translated.
pub(crate) struct Course {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) detected: Option<Detection>,
    /// The model; none if both languages are the same. Texts of a request share a turn.
    pub(crate) turn: Option<Arc<Turn>>,
}

impl Course {
    /// The name of the model; empty if there is none.
    pub(crate) fn model_name(&self) -> String {
        let Some(turn) = &self.turn else { return String::new() };
        match &turn.then {
            None => turn.model.name.clone(),
            Some(then) => format!("{} + {}", turn.model.name, then.model.name),
        }
    }
}

impl App {
    /// Translates texts; the translations are in their order.
    pub(crate) async fn translate(
        self: &Arc<Self>,
        client: Client,
        ask: Ask,
    ) -> Outcome<Vec<Translated>> {
        let deadline = Instant::now() + ask.timeout;
        let work = async {
            self.check_size(&ask)?;
            if let Some((format, options)) = &ask.markup {
                let documents = read_texts(&ask.texts, *format, options)?;
                return self.translate_markup(client, ask, &documents).await;
            }
            let courses = self.courses(client, &ask).await?;
            let flights = self.launch(&ask, &courses)?;
            let mut translated = Vec::with_capacity(courses.len());
            for (course, flight) in courses.into_iter().zip(flights) {
                let model = course.model_name();
                let Course { from, to, detected, .. } = course;
                translated.push(Translated {
                    translation: flight.await?,
                    from,
                    to,
                    model,
                    detected,
                });
            }
            Ok(translated)
        };
        before(deadline, work).await
    }

    /// Checks a request against the limits.
    pub(crate) fn check_size(&self, ask: &Ask) -> Outcome<()> {
        let config = &self.config;
        let count = ask.texts.len();
        if count > config.max_texts {
            let message = format!(
                "Invalid request: request ({count}) exceeds text limit ({})",
                config.max_texts
            );
            return Err(Problem::new(Kind::TooLarge, message));
        }
        let longest = ask.texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        if longest > config.max_characters {
            let message = format!(
                "Invalid request: request ({longest}) exceeds text limit ({})",
                config.max_characters
            );
            return Err(Problem::new(Kind::TooLarge, message));
        }
        Ok(())
    }

    /// Finds the way of each text. Models are opened if need be.
    pub(crate) async fn courses(&self, client: Client, ask: &Ask) -> Outcome<Vec<Course>> {
        let count = ask.texts.len();
        self.access.charge(client, count, Instant::now())?;
        let to = self.language(&ask.to, Side::Target)?;
        let from = ask.from.as_deref().map(|from| self.language(from, Side::Source)).transpose()?;
        let mut courses: Vec<Course> = Vec::with_capacity(count);
        for text in &ask.texts {
            let (from, detected) = match &from {
                Some(from) => (from.clone(), None),
                None => {
                    let detected = self.detect_source(text, &to);
                    (detected.language.unwrap_or_default().to_owned(), Some(detected))
                }
            };
            let same = |course: &&Course| course.from == from && course.turn.is_some();
            let turn = match courses.iter().find(same) {
                _ if from == to || from.is_empty() => None,
                Some(course) => course.turn.clone(),
                None => Some(Arc::new(self.admit(client, &from, &to, ask.priority()).await?)),
            };
            courses.push(Course { from, to: to.clone(), detected, turn });
        }
        Ok(courses)
    }

    /// A turn at the model that translates a pair, or at two in a row, unless it would come too late.
    async fn admit(
        &self,
        client: Client,
        from: &str,
        to: &str,
        priority: Priority,
    ) -> Outcome<Turn> {
        let Some(route) = self.registry.routes().remove(&Pair::new(from, to)) else {
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
        for name in route.models.iter().rev() {
            let model = self.model(name)?;
            wait += self.expected_wait(&model, priority);
            let mut turn = self.turn(client, model, priority);
            turn.then = then.map(Box::new);
            then = Some(turn);
        }
        match then {
            Some(turn) if wait <= self.config.max_wait => Ok(turn),
            _ => Err(Problem::busy(wait)),
        }
    }

    /// The model of that name, opened on another thread if it is not open.
    fn model(&self, name: &str) -> Outcome<Arc<OpenModel>> {
        if let Some(model) = self.registry.opened(name) {
            return Ok(model);
        }
        // Opening reads files and packs weights: it must not hold up other requests.
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

    /// Starts the translations, or joins equal ones.
    fn launch(self: &Arc<Self>, ask: &Ask, courses: &[Course]) -> Outcome<Vec<Flight>> {
        let bytes: usize = ask.texts.iter().map(String::len).sum();
        let start = || {
            ask.texts
                .iter()
                .zip(courses)
                .map(|(text, course)| self.start(text, course, &ask.wanted))
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
        course: &Course,
        wanted: &Wanted,
    ) -> Outcome<Flight> {
        let Some(turn) = &course.turn else { return Ok(ready(Ok(unchanged(text.to_owned())))) };
        let key = Key { models: turn.numbers(), wanted: wanted.clone(), text: text.into() };
        if self.cache.keeps() {
            if let Some(translation) = self.cache.get(&key) {
                self.metrics.cache_hits.fetch_add(1, Relaxed);
                return Ok(ready(Ok(translation)));
            }
            self.metrics.cache_misses.fetch_add(1, Relaxed);
        }
        let (flight, start) = self.cache.fly(&key);
        let Some(start) = start else {
            self.metrics.coalesced.fetch_add(1, Relaxed);
            return Ok(flight);
        };
        self.metrics.translated(&format!("{}-{}", course.from, course.to), text.chars().count());
        let options = self.first_options(turn, wanted);
        let request = Request::new(text).with_options(&options).with_kept(&wanted.keep);
        let request = request.between(&course.from, &course.to);
        let submitted = turn.caller.try_submit(&request).map_err(Problem::from);
        let refused = submitted.as_ref().err().cloned();
        let (app, turn, wanted) = (Arc::clone(self), Arc::clone(turn), wanted.clone());
        start.with(async move {
            // The service lives as long as its request.
            let first = submitted?.await?;
            Ok(Arc::new(match app.submit_second(&turn, &first, &wanted, false)? {
                None => first,
                Some(second) => second.await?.through(first),
            }))
        });
        refused.map_or(Ok(flight), Err)
    }

    /// Gives the second model of a way what the first one made of a text; none if there is one model.
    pub(crate) fn submit_second(
        &self,
        turn: &Turn,
        first: &Translation,
        wanted: &Wanted,
        tokens: bool,
    ) -> Outcome<Option<Pending>> {
        let Some(then) = &turn.then else { return Ok(None) };
        let options = self.options(&then.model, wanted).with_glossary_mode(GlossaryMode::Mask);
        let (sentences, keep) = (first.target_sentences(), first.kept_places());
        let request = Request::new(first.text()).with_options(&options).with_kept(&keep);
        let mut request = request.with_sentences(&sentences);
        request.tokens = tokens;
        Ok(Some(then.caller.try_submit(&request)?))
    }

    /// A model's options with what a request wants.
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

    /// The options of the first model of a turn.
    pub(crate) fn first_options(&self, turn: &Turn, wanted: &Wanted) -> Options {
        let options = self.options(&turn.model, wanted);
        match turn.then {
            None => options,
            Some(_) => options.with_n_best(1).keeping_terms(),
        }
    }

    /// The code of a language as the models have it.
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
        let language = Language::find(name).ok_or_else(unknown)?;
        if codes.contains(language.code) {
            return Ok(language.code.to_owned());
        }
        // A model of Portuguese serves who asks for that of Brazil, and one of Brazil who asks for any.
        let base = |code: &str| code.split('-').next().unwrap_or_default().to_owned();
        let akin = |codes: &BTreeSet<String>| {
            codes.iter().find(|code| base(code) == base(language.code)).cloned()
        };
        // Where only the other side has the language, it is the pair that is missing.
        akin(&codes).or_else(|| akin(&self.codes(side.other()))).ok_or_else(unknown)
    }

    /// The codes of all languages on a side.
    pub(crate) fn codes(&self, side: Side) -> BTreeSet<String> {
        let code = |pair: Pair| match side {
            Side::Source => pair.from,
            Side::Target => pair.to,
        };
        self.registry.pairs().into_iter().map(code).collect()
    }

    /// The language of a text, among those that can be translated to `to`. Where there is but one, it is that one.
    pub(crate) fn detect_source(&self, text: &str, to: &str) -> Detection {
        let routes = self.registry.routes();
        let to_it = routes.keys().filter(|pair| pair.to == to);
        let sources: Vec<&str> = to_it.map(|pair| pair.from.as_str()).collect();
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

impl Ask {
    /// The priority: as asked for, or by size.
    pub(crate) fn priority(&self) -> Priority {
        let characters: usize = self.texts.iter().map(String::len).sum();
        self.priority.unwrap_or(match characters < BULK_CHARACTERS {
            true => Priority::Interactive,
            false => Priority::Bulk,
        })
    }
}

/// What a piece of work gives, if it is done in time.
pub(crate) async fn before<T>(
    deadline: Instant,
    work: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    let late = |_| Err(Problem::new(Kind::Deadline, "The request took longer than it may"));
    tokio::time::timeout_at(deadline.into(), work).await.unwrap_or_else(late)
}

/// A text that is its own translation.
pub(crate) fn unchanged(text: String) -> Arc<Translation> {
    let same = Alternative { text, ended: true, ..Alternative::default() };
    Arc::new(Translation { alternatives: vec![same], ..Translation::default() })
}

fn ready(made: crate::cache::Made) -> Flight {
    let making =
        Box::pin(std::future::ready(made)) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>;
    making.shared()
}
