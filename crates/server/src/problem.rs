//! Errors of requests. Each dialect writes them in its own form ([`crate::api::Dialect`]).

use std::time::Duration;

/// The kind of a problem, from which dialects choose the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The request cannot be understood.
    BadRequest,
    /// A language that no model has.
    UnknownLanguage,
    /// Two languages with no model between them.
    UnknownPair,
    /// The body, a text or a list is too large.
    TooLarge,
    /// The client has exceeded its rate limit.
    RateLimited,
    /// The API key is missing.
    NoKey,
    /// The API key is unknown.
    WrongKey,
    /// There is no such path, file or glossary.
    NotFound,
    /// The path exists, but not with this method.
    WrongMethod,
    /// The server does not support it.
    NotSupported,
    /// The queue is full or the expected wait too long.
    Busy,
    /// The request has exceeded its timeout.
    Deadline,
    /// The server is shutting down.
    Stopping,
    /// A model cannot be used, or a device failed.
    Internal,
}

impl Kind {
    /// The name in the native API, in logs and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::BadRequest => "bad_request",
            Kind::UnknownLanguage => "unknown_language",
            Kind::UnknownPair => "unknown_pair",
            Kind::TooLarge => "too_large",
            Kind::RateLimited => "rate_limited",
            Kind::NoKey | Kind::WrongKey => "unauthorized",
            Kind::NotFound => "not_found",
            Kind::WrongMethod => "method_not_allowed",
            Kind::NotSupported => "not_supported",
            Kind::Busy => "busy",
            Kind::Deadline => "deadline",
            Kind::Stopping => "stopping",
            Kind::Internal => "internal",
        }
    }

    /// The HTTP status in most dialects.
    pub(crate) fn status(self) -> u16 {
        match self {
            Kind::BadRequest | Kind::UnknownLanguage | Kind::UnknownPair => 400,
            Kind::NoKey => 401,
            Kind::WrongKey => 403,
            Kind::NotFound => 404,
            Kind::WrongMethod => 405,
            Kind::TooLarge => 413,
            Kind::RateLimited => 429,
            Kind::Internal => 500,
            Kind::NotSupported => 501,
            Kind::Busy | Kind::Stopping => 503,
            Kind::Deadline => 504,
        }
    }
}

/// Why a request is not answered.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    /// A sentence for the user.
    pub(crate) message: String,
    /// The time after which to try again.
    pub(crate) retry_after: Option<Duration>,
}

pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Problem {
        Problem { kind, message: message.into(), retry_after: None }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Problem {
        Problem::new(Kind::BadRequest, message)
    }

    pub(crate) fn not_supported(what: &str) -> Problem {
        Problem::new(Kind::NotSupported, format!("{what} is not supported by this server"))
    }

    pub(crate) fn busy(wait: Duration) -> Problem {
        let message = "The server is busy: try again later";
        Problem { retry_after: Some(wait), ..Problem::new(Kind::Busy, message) }
    }
}

impl From<peregrine::Error> for Problem {
    fn from(error: peregrine::Error) -> Problem {
        use peregrine::Error;
        match error {
            Error::Full => Problem::busy(Duration::from_secs(1)),
            Error::Deadline => Problem::new(Kind::Deadline, "The request took too long"),
            Error::Stopped | Error::Cancelled => {
                Problem::new(Kind::Stopping, "The server is ending")
            }
            Error::TooLong { .. } => Problem::new(Kind::TooLarge, error.to_string()),
            other => Problem::new(Kind::Internal, other.to_string()),
        }
    }
}
