//! By what `check` judges: the configuration, or the standard alone.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cli::Usage;
use crate::clock;
use crate::config::Settings;
use crate::decision::decide::{Policy, Unauthorized};
use crate::decision::inquiry::Identities;
use politesse_robots::crawler::Crawler;
use politesse_robots::{Dialect, RobotsTxt};

/// The configuration, not read yet: not every check needs one.
pub(in crate::cli) struct Configuration<F> {
    /// Whether it was named on the command line.
    pub(in crate::cli) is_named: bool,
    /// Reads it.
    pub(in crate::cli) read: F,
}

impl<F: Fn() -> Result<Settings, Usage>> Configuration<F> {
    /// By what a saved file is judged: the standard, and what the operator laid
    /// down only if it was named. What lies about on a machine must not change
    /// the answer to a question that brings its own file.
    pub(super) fn offline(&self, dialect: Option<Dialect>) -> Result<Terms, Usage> {
        if self.is_named {
            self.online(dialect).map(|settings| Terms::of(&settings))
        } else {
            Ok(Terms::standard().in_dialect(dialect))
        }
    }

    /// The configuration, for files that are read by `dialect` if one is given.
    pub(super) fn online(&self, dialect: Option<Dialect>) -> Result<Settings, Usage> {
        let mut settings = (self.read)()?;
        if let Some(dialect) = dialect {
            settings.policy = settings.policy.with_dialect(dialect);
            settings.robots.policy = settings.robots.policy.with_dialect(dialect);
        }
        Ok(settings)
    }
}

/// By what to judge.
#[derive(Clone)]
pub(super) struct Terms {
    /// As the proxy judges.
    pub(super) policy: Arc<Policy>,
    /// The same of the URL as sent.
    pub(super) as_sent: Arc<Policy>,
    identities: Arc<Identities>,
    /// How much of a file is read, in bytes.
    pub(super) bytes_max: usize,
    /// Now, for all that is judged.
    pub(super) at: Timestamp,
}

impl Terms {
    /// Nothing but RFC 9309.
    fn standard() -> Self {
        Self::by(Policy::new(Unauthorized::Allow))
    }

    /// What the operator laid down.
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            identities: Arc::new(settings.exchange.request.identities.clone()),
            bytes_max: settings.robots.max_bytes,
            ..Self::by(settings.policy.clone())
        }
    }

    fn by(policy: Policy) -> Self {
        Self {
            as_sent: Arc::new(policy.as_sent()),
            policy: Arc::new(policy),
            identities: Arc::default(),
            bytes_max: RobotsTxt::BYTES_MIN,
            at: clock::now(),
        }
    }

    /// The same for files that are read by `dialect`, if one is given.
    pub(super) fn in_dialect(&self, dialect: Option<Dialect>) -> Self {
        let Some(dialect) = dialect.filter(|dialect| *dialect != self.dialect()) else {
            return self.clone();
        };
        Self {
            identities: Arc::clone(&self.identities),
            bytes_max: self.bytes_max,
            at: self.at,
            ..Self::by(Policy::clone(&self.policy).with_dialect(dialect))
        }
    }

    /// By which text files are read.
    pub(super) fn dialect(&self) -> Dialect {
        self.policy.dialect()
    }

    /// Who a person means by `agent`; nobody has connected, so there is no
    /// address.
    pub(super) fn crawler(&self, agent: Option<&str>) -> Crawler {
        self.identities.crawler(agent.map(str::as_bytes), None)
    }
}
