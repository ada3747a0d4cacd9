//! Requests.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use peregrine_decode::batching::Priority;
use peregrine_decode::clock::{self, Moment};
use peregrine_text::Split;

use crate::{Error, Options};

/// A text to translate.
///
/// ```
/// use std::time::Duration;
/// use peregrine::{Priority, Request};
///
/// let request = Request::new("Good morning!")
///     .with_prefix("Bom")
///     .with_priority(Priority::Bulk)
///     .within(Duration::from_secs(1));
/// assert_eq!(request.text, "Good morning!");
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The text.
    pub text: &'a str,
    /// The first words of its translation, if they are given.
    pub prefix: Option<&'a str>,
    /// Its options; without them those of the call or of the model.
    pub options: Option<&'a Options>,
    /// Its priority in a [`Service`](crate::Service).
    pub priority: Priority,
    /// The time at which a service fails it with [`Error::Deadline`](crate::Error::Deadline).
    pub deadline: Option<Moment>,
    /// Whether a service reports each word of a greedy search as it comes.
    pub tokens: bool,
    /// The bytes of its sentences, if they are known: they are not looked for then, whatever [`Options::split`] says. What is
    /// not in a sentence is not translated.
    pub sentences: Option<&'a [Range<usize>]>,
    /// Bytes of the text that must come back as they are, in order: code, what is marked as not to be translated. Counts with
    /// carry-through only ([`Options::carry`]). [`Translation::terms`](crate::Translation::terms) says where they went.
    pub keep: &'a [Range<usize>],
    /// The language of the text, for models of several. A model of one pair ignores it.
    pub from: Option<&'a str>,
    /// The language of the translation, for models of several. A model of one pair ignores it.
    pub to: Option<&'a str>,
    /// The exact number of target tokens, see [`measure::of_length`](crate::measure::of_length).
    pub(crate) length: Option<usize>,
}

impl<'a> Request<'a> {
    /// A text with default settings.
    pub fn new(text: &'a str) -> Request<'a> {
        Request {
            text,
            prefix: None,
            options: None,
            priority: Priority::Interactive,
            deadline: None,
            tokens: false,
            sentences: None,
            keep: &[],
            from: None,
            to: None,
            length: None,
        }
    }

    /// The same request with a translation that begins with `prefix`.
    pub fn with_prefix(self, prefix: &'a str) -> Request<'a> {
        Request { prefix: Some(prefix), ..self }
    }

    /// The same request with options of its own.
    pub fn with_options(self, options: &'a Options) -> Request<'a> {
        Request { options: Some(options), ..self }
    }

    /// The same request with another priority.
    pub fn with_priority(self, priority: Priority) -> Request<'a> {
        Request { priority, ..self }
    }

    /// The same request with a deadline.
    pub fn until(self, deadline: Moment) -> Request<'a> {
        Request { deadline: Some(deadline), ..self }
    }

    /// The same request with a deadline that much time from now.
    pub fn within(self, time: Duration) -> Request<'a> {
        Request { deadline: clock::now().checked_add(time), ..self }
    }

    /// The same request with words reported as they come.
    pub fn with_tokens(self) -> Request<'a> {
        Request { tokens: true, ..self }
    }

    /// The same request with sentences that are known.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let request = Request::new("Good morning Two dogs play in the snow.").with_sentences(&[0..12, 13..39]);
    /// let translation = translator.translate_batch(&[request], &translator.options())?.remove(0);
    /// assert_eq!(translation.sentences.len(), 2);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn with_sentences(self, sentences: &'a [Range<usize>]) -> Request<'a> {
        Request { sentences: Some(sentences), ..self }
    }

    /// The same request with bytes that must come back as they are.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let request = Request::new("Open the Big Red Door now.").with_kept(&[9..21]);
    /// let translation = translator.translate_batch(&[request], &translator.text_options())?.remove(0);
    /// assert!(translation.text().contains("Big Red Door"));
    /// assert_eq!(translation.terms[0].source, 9..21);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn with_kept(self, keep: &'a [Range<usize>]) -> Request<'a> {
        Request { keep, ..self }
    }

    /// The same request between these languages.
    pub fn between(self, from: &'a str, to: &'a str) -> Request<'a> {
        Request { from: Some(from), to: Some(to), ..self }
    }

    /// Whether it names a language.
    pub(crate) fn has_languages(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// The bytes of the text's sentences: as they are known, or as `split` finds them.
    pub(crate) fn sentences(&self, split: Split) -> Result<Cow<'a, [Range<usize>]>, Error> {
        let Some(sentences) = self.sentences else {
            let mut sentences = split.sentences(self.text);
            // What must come back as it is belongs to one sentence.
            let cut = |before: &Range<usize>, next: &Range<usize>| {
                self.keep.iter().any(|keep| keep.start < before.end && next.start < keep.end)
            };
            sentences.dedup_by(|next, before| {
                let joins = cut(before, next);
                before.end = if joins { next.end } else { before.end };
                joins
            });
            return Ok(Cow::Owned(sentences));
        };
        let mut end = 0;
        for (number, range) in sentences.iter().enumerate() {
            if range.start < end || self.text.get(range.clone()).is_none() {
                return Err(Error::Sentences { number });
            }
            end = range.end;
        }
        Ok(Cow::Borrowed(sentences))
    }

    /// What must come back as it is of a stretch of the text, as bytes of that stretch. What is no text is passed over.
    pub(crate) fn keep_within(&self, stretch: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut end = stretch.start;
        self.keep.iter().filter_map(move |range| {
            let inside = range.start.max(end)..range.end.min(stretch.end);
            self.text.get(inside.clone()).filter(|text| !text.is_empty())?;
            end = inside.end;
            Some(inside.start - stretch.start..inside.end - stretch.start)
        })
    }
}
