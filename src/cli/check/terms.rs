//! By what `check` judges: the configuration, or the standard alone.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cli::Usage;
use crate::clock;
use crate::config::Settings;
use crate::rules::crawler::Crawler;
use crate::rules::decision::{Policy, Unauthorized};
use crate::rules::identity::Identities;

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
    pub(super) fn offline(&self) -> Result<Terms, Usage> {
        if self.is_named {
            (self.read)().map(|settings| Terms::of(&settings))
        } else {
            Ok(Terms::standard())
        }
    }
}

/// By what to judge.
pub(super) struct Terms {
    /// As the proxy judges.
    pub(super) policy: Arc<Policy>,
    /// The same of the URL as sent.
    pub(super) as_sent: Arc<Policy>,
    identities: Identities,
    /// Now, for all that is judged.
    pub(super) at: Timestamp,
}

impl Terms {
    /// Nothing but RFC 9309.
    fn standard() -> Self {
        Self::new(Policy::new(Unauthorized::Allow), Identities::default())
    }

    /// What the operator laid down.
    pub(super) fn of(settings: &Settings) -> Self {
        let identities = &settings.exchange.request.identities;
        Self::new(settings.policy.clone(), identities.clone())
    }

    fn new(policy: Policy, identities: Identities) -> Self {
        Self {
            as_sent: Arc::new(policy.as_sent()),
            policy: Arc::new(policy),
            identities,
            at: clock::now(),
        }
    }

    /// Who a person means by `agent`; nobody has connected, so there is no
    /// address.
    pub(super) fn crawler(&self, agent: Option<&str>) -> Crawler {
        self.identities.crawler(agent.map(str::as_bytes), None)
    }
}
