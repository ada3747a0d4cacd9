//! What is asked for.

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
    /// How its translation begins, if that is known.
    pub prefix: Option<&'a str>,
    /// How it is translated; if it does not say, as whoever it is handed to does, or the model.
    pub options: Option<&'a Options>,
    /// Who goes first, where requests meet in a [`Service`](crate::Service).
    pub priority: Priority,
    /// When a service gives it up.
    pub deadline: Option<Moment>,
    /// Whether a service tells each word of a greedy search as it comes.
    pub tokens: bool,
    /// The language of the text, for models of several. One of a single pair does not look.
    pub from: Option<&'a str>,
    /// The language of the translation, likewise.
    pub to: Option<&'a str>,
    /// Exactly this many target tokens, see [`measure::of_length`](crate::measure::of_length).
    pub(crate) length: Option<usize>,
}

impl<'a> Request<'a> {
    /// A text of which nothing else is known.
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

    /// The same with a translation that begins with `prefix`.
    pub fn with_prefix(self, prefix: &'a str) -> Request<'a> {
        Request { prefix: Some(prefix), ..self }
    }

    /// The same with options of its own.
    pub fn with_options(self, options: &'a Options) -> Request<'a> {
        Request { options: Some(options), ..self }
    }

    /// The same with another priority.
    pub fn with_priority(self, priority: Priority) -> Request<'a> {
        Request { priority, ..self }
    }

    /// The same, given up at a point in time.
    pub fn until(self, deadline: Moment) -> Request<'a> {
        Request { deadline: Some(deadline), ..self }
    }

    /// The same, given up after that time from now.
    pub fn within(self, time: Duration) -> Request<'a> {
        Request { deadline: clock::now().checked_add(time), ..self }
    }

    /// The same with words told as they come.
    pub fn with_tokens(self) -> Request<'a> {
        Request { tokens: true, ..self }
    }

    /// The same between these languages.
    pub fn between(self, from: &'a str, to: &'a str) -> Request<'a> {
        Request { from: Some(from), to: Some(to), ..self }
    }
}
