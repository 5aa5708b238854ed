//! What goes to stderr. No module of ours takes it as its options: the
//! subscriber is set up where the program starts.

use std::num::NonZeroU32;

/// What goes to stderr, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How an event is written.
    pub format: LogFormat,
    /// The least urgent level that is written.
    pub level: tracing::Level,
    /// How many lines of one kind are written at once, of those that others can
    /// cause as often as they like.
    pub burst: NonZeroU32,
}

/// How a log event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// [`LogFormat::Pretty`] on a terminal, else [`LogFormat::Json`].
    Auto,
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}
