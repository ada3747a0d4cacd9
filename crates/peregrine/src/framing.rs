//! The languages of a request as the network sees them: ids around the source, and the first word or the first input of
//! the decoder.

use std::sync::Arc;

use peregrine_decode::{Call, Job, Settings};
use peregrine_model::{LanguageToken, Languages, SourceFrame, TargetPlace};
use peregrine_text::Language;

use crate::registry::Pair;
use crate::{Error, Options, Request, Translator};

/// What the languages of a request add to its sentences. For models of one pair it is the model's own frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Framing {
    pub(crate) frame: SourceFrame,
    language: Option<u32>,
    start: Option<u32>,
}

impl Framing {
    /// The job of a sentence.
    pub(crate) fn job(&self, ids: &[u32], settings: &Arc<Settings>, call: &Arc<Call>) -> Job {
        let Framing { frame, language, start } = *self;
        Job { language, start, ..Job::new(frame.frame(ids), settings, call) }
    }

    /// The number of ids before those of the text.
    pub(crate) fn begins(&self) -> usize {
        usize::from(self.frame.begin.is_some())
    }
}

impl Translator {
    /// The same translator for requests that name no languages: they are translated between these. A model of one pair ignores
    /// them, a multilingual one must know them.
    ///
    /// ```
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = peregrine::Translator::builtin()?.between(Some("en"), Some("pt"))?;
    /// assert_eq!(translator.translate("Two dogs play in the snow.")?, "Dois cães brincam na neve.");
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn between(self, from: Option<&str>, to: Option<&str>) -> Result<Translator, Error> {
        let Some(languages) = &self.model().languages else { return Ok(self) };
        // A source that need not be told does not need to be known either.
        let from = from.filter(|_| languages.needs_source());
        for name in from.iter().chain(&to) {
            find(languages, name)?;
        }
        let chosen = Arc::new((from.map(str::to_owned), to.map(str::to_owned)));
        Ok(self.with_chosen(chosen))
    }

    /// The languages that a pair of names means to the model, in the codes of [`Language`] where they have one.
    pub(crate) fn named_pair(&self, from: Option<&str>, to: Option<&str>) -> Option<Pair> {
        let languages = self.model().languages.as_ref()?;
        let code = |name: Option<&str>| {
            let code = &languages.find(name?)?.code;
            Some(Language::find(code).map_or(code.clone(), |language| language.code.to_owned()))
        };
        let known = self.own_pair();
        let from = code(from).or_else(|| known.map(|pair| pair.from.clone()))?;
        Some(Pair::new(from, code(to)?))
    }

    /// What the languages of a request add to its sentences.
    /// Those of the request come first, then those of the options, then those of the translator.
    pub(crate) fn framing(
        &self,
        request: Option<&Request<'_>>,
        options: &Options,
    ) -> Result<Framing, Error> {
        let frame = *self.model().members[0].architecture.source_frame();
        let Some(languages) = &self.model().languages else {
            return Ok(Framing { frame, ..Framing::default() });
        };
        let (from, to) = self.chosen();
        let from = request.and_then(|request| request.from).or(options.from.as_deref()).or(from);
        let to = request.and_then(|request| request.to).or(options.to.as_deref()).or(to);
        let from = from.filter(|_| languages.needs_source());
        let from = from.map(|name| find(languages, name)).transpose()?;
        let to = to.map(|name| find(languages, name)).transpose()?;
        let to = to.or_else(|| {
            let id = languages.default_target?;
            languages.list.iter().find(|language| language.id == id)
        });
        let missing = |side| Error::NoLanguage { side, count: languages.list.len() };
        if languages.are_required() && to.is_none() {
            return Err(missing("target"));
        }
        if languages.needs_source() && from.is_none() {
            return Err(missing("source"));
        }
        let id = |place| to.filter(|_| languages.target == place).map(|token| token.id);
        Ok(Framing {
            frame: languages.frame(frame, from, to),
            language: id(TargetPlace::First),
            start: id(TargetPlace::Start),
        })
    }
}

fn find<'l>(languages: &'l Languages, name: &str) -> Result<&'l LanguageToken, Error> {
    languages.find(name).ok_or_else(|| {
        let near = languages.near_misses(name).join(" or ");
        let hint = match near.is_empty() {
            true => " (`peregrine inspect` lists them)".to_owned(),
            false => format!("; is it {near}?"),
        };
        Error::UnknownLanguage { name: name.to_owned(), count: languages.list.len(), hint }
    })
}
