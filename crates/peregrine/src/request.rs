//! Requests.

use std::time::Duration;

use peregrine_decode::batching::Priority;
use peregrine_decode::clock::{self, Moment};

use crate::Options;

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

    /// The same request between these languages.
    pub fn between(self, from: &'a str, to: &'a str) -> Request<'a> {
        Request { from: Some(from), to: Some(to), ..self }
    }
}
