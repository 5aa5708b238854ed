//! What goes to stderr. No module of ours takes it as its options: the
//! subscriber is set up where the program starts.

/// What goes to stderr, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How an event is written.
    pub format: LogFormat,
    /// The least urgent level that is written.
    pub level: tracing::Level,
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
