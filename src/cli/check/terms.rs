//! By what `check` judges: the configuration, or the standard alone.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cli::configuration::ConfigurationRequest;
use crate::cli::output::Usage;
use crate::clock;
use crate::config::Settings;
use crate::decision::decide::{Policy, Unauthorized};
use crate::decision::inquiry::Identities;
use politesse_robots::crawler::Crawler;
use politesse_robots::{Dialect, RobotsTxt};

/// Returns the terms for a saved file: the standard, and the configuration only
/// if it was named. A file that lies about on a machine must not change the
/// answer to a question that brings its own robots.txt.
pub(super) fn offline(
    configuration: ConfigurationRequest<'_>,
    dialect: Option<Dialect>,
) -> Result<Terms, Usage> {
    if configuration.file.is_some() {
        online(configuration, dialect).map(|settings| Terms::of(&settings))
    } else {
        Ok(Terms::standard().in_dialect(dialect))
    }
}

/// Returns the configuration, for files that are read by `dialect` if one is
/// given.
pub(super) fn online(
    configuration: ConfigurationRequest<'_>,
    dialect: Option<Dialect>,
) -> Result<Settings, Usage> {
    let mut settings = configuration.settings()?;
    if let Some(dialect) = dialect {
        settings.policy = settings.policy.with_dialect(dialect);
        settings.robots.policy = settings.robots.policy.with_dialect(dialect);
    }
    Ok(settings)
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
