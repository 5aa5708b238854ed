//! Difference between two configurations: which parts are rebuilt, and which are
//! carried over with their state.
//!
//! Every new part is built before anything changes. Does not know how they are put in
//! force.

use std::sync::Arc;

use anyhow::Context as _;
use thiserror::Error;

use super::parts::{
    OriginClients, SharedParts, annotator, crawlers, interceptor, listener_tls, names,
};
use crate::config::{Settings, Values};
use politesse_proxy::ca::Ca;
use politesse_proxy::connect::Interceptor;
use politesse_proxy::decider::Decider;
use politesse_proxy::exchange::Proxy;
use politesse_proxy::listener_tls::ListenerTls;
use politesse_proxy::purpose_policies::PurposePolicies;
use politesse_proxy::server::ActiveConfig;
use politesse_proxy::turns::TurnDecider;

/// Keys or sections that a reload cannot change: sockets are bound, the record is open,
/// and the log format is set.
const FIXED: [&str; 14] = [
    "proxy.listen",
    "proxy.backlog",
    "admin.listen",
    "admin.base_path",
    "admin.hosts",
    "admin.trusted_proxies",
    "admin.tls_cert",
    "admin.tls_key",
    "admin.sessions",
    "admin.session_lifetime",
    "audit.",
    "fleet.",
    "log.format",
    "log.burst",
];

/// Keys that clients of origins are built from. Changing one discards their state:
/// connections, resolved names, robots.txt files.
const CLIENTS: [&str; 5] = [
    "upstream.",
    "egress.",
    "robots.",
    "https.upstream_roots",
    "proxy.internal_name",
];

/// Keys among [`CLIENTS`] that affect only decisions and responses.
const NOT_CLIENTS: [&str; 5] = [
    "robots.override",
    "robots.status.",
    "robots.serve_cached",
    "robots.unreachable_answer",
    "robots.max_names",
];

/// Reason why a valid configuration is not put in force.
#[derive(Debug, Error)]
enum ReloadError {
    /// Changed keys that a reload cannot change.
    #[error("{} cannot be changed while the proxy runs: restart it", .0.join(", "))]
    Fixed(Vec<String>),
}

/// A change of configuration while the proxy runs.
pub(super) struct Reload<'a> {
    settings: &'a Settings,
    /// Keys whose values differ.
    changed: Vec<&'a str>,
    files: FileState,
}

/// State of the files that clients of origins are built from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileState {
    /// Every file is unchanged.
    Same,
    /// The content of at least one file has changed.
    Changed,
}

impl<'a> Reload<'a> {
    /// Compares `settings` with the values in force.
    pub(super) fn new(in_force: &Values, settings: &'a Settings, files: FileState) -> Self {
        Self {
            settings,
            changed: settings.values.changed_from(in_force),
            files,
        }
    }

    /// Builds the configuration to put in force. Parts whose keys have not changed are
    /// taken from `current`.
    ///
    /// # Errors
    ///
    /// [`ReloadError::Fixed`], or any error that would keep a proxy from starting.
    pub(super) fn build(
        &self,
        current: &ActiveConfig,
        shared: &SharedParts,
    ) -> anyhow::Result<ActiveConfig> {
        // Before any part is built: the operator needs all such keys, not the first
        // error of a part.
        let fixed: Vec<_> = self.keys_in(&FIXED).map(str::to_owned).collect();
        if !fixed.is_empty() {
            return Err(ReloadError::Fixed(fixed).into());
        }
        let (settings, before) = (self.settings, &current.proxy);
        let clients = self.origin_clients(before, shared)?;
        let proxy = Proxy {
            options: settings.exchange.clone(),
            crawlers: crawlers(settings, Arc::clone(&before.crawlers.names)),
            turns: TurnDecider {
                options: settings.exchange.turns.clone(),
                decider: Decider {
                    egress: clients.egress,
                    names: if self.concerns(&["robots.max_names", "robots.user_agent"]) {
                        names(settings, &shared.metrics)
                    } else {
                        before.turns.decider.names.clone()
                    },
                    robots: clients.robots,
                },
                policy: Arc::new(settings.policy.clone()),
                latest_policy: Arc::clone(&shared.latest_policy),
                purpose_policies: PurposePolicies::default(),
                scheduler: Arc::clone(&shared.scheduler),
            },
            upstream: clients.upstream,
            entry: Arc::clone(&shared.entry),
            audit: Arc::clone(&shared.audit),
            annotator: if self.concerns(&["directives."]) {
                annotator(settings, &shared.metrics)
            } else {
                Arc::clone(&before.annotator)
            },
            metrics: Arc::clone(&shared.metrics),
        };
        let tls = self.listener_tls(current)?;
        Ok(ActiveConfig {
            proxy,
            // Last, because it may create an authority.
            interceptor: self.interceptor(current)?,
            tls,
            options: settings.listener.clone(),
        })
    }

    fn origin_clients(
        &self,
        before: &Proxy,
        shared: &SharedParts,
    ) -> anyhow::Result<OriginClients> {
        let is_changed = self.keys_in(&CLIENTS).any(|key| !is_in(key, &NOT_CLIENTS));
        if is_changed || self.files == FileState::Changed {
            return OriginClients::shared(self.settings, shared);
        }
        Ok(OriginClients {
            egress: Arc::clone(&before.turns.decider.egress),
            upstream: Arc::clone(&before.upstream),
            robots: Arc::clone(&before.turns.decider.robots),
        })
    }

    /// Rereads the authority. If it is unchanged, the interceptor is carried over with
    /// the certificates it has issued.
    fn interceptor(&self, current: &ActiveConfig) -> anyhow::Result<Option<Arc<Interceptor>>> {
        let is_changed = self
            .keys_in(&["https."])
            .any(|key| key != "https.upstream_roots");
        let Some(before) = current.interceptor.as_ref().filter(|_| !is_changed) else {
            return interceptor(self.settings);
        };
        // `load`, not `open`: if the files are gone, someone removed them, and no
        // crawler would trust an authority created in their place.
        let ca = Ca::load(&self.settings.ca).context("the authority cannot be read again")?;
        // The root alone is not compared: a node may have another certificate of the
        // same root.
        if ca.is_same(&before.ca()) {
            return Ok(Some(Arc::clone(before)));
        }
        let timeout = self.settings.connect.handshake_timeout;
        Ok(Some(Arc::new(Interceptor::new(Arc::new(ca), timeout)?)))
    }

    /// Rereads the certificate of the listeners. If it is unchanged, the current one
    /// stays in use, so that clients can resume their TLS sessions.
    fn listener_tls(&self, current: &ActiveConfig) -> anyhow::Result<Option<Arc<ListenerTls>>> {
        let read = listener_tls(self.settings)?;
        let is_same =
            |before: &&Arc<ListenerTls>| read.as_ref().is_some_and(|tls| tls.is_same(before));
        let before = current.tls.as_ref().filter(is_same);
        Ok(before.cloned().or(read))
    }

    /// Logs what the reload changes, compared with `before`, the settings still in
    /// force.
    pub(super) fn log(&self, before: &Settings) {
        tracing::info!(
            changed = self.changed.join(", "),
            configuration_before = %before.values.digest(),
            configuration = %self.settings.values.digest(),
            policy_before = %before.policy.digest(),
            policy = %self.settings.policy.digest(),
            "the configuration was reloaded"
        );
    }

    /// Returns the changed keys that `names` contains, or that belong to a section in
    /// `names`.
    fn keys_in(&self, names: &[&str]) -> impl Iterator<Item = &'a str> {
        let changed = self.changed.iter().copied();
        changed.filter(|key| is_in(key, names))
    }

    fn concerns(&self, names: &[&str]) -> bool {
        self.keys_in(names).next().is_some()
    }
}

/// Tells whether `names` contains `key`, or the section that `key` belongs to. Sections
/// end with a dot.
pub(super) fn is_in(key: &str, names: &[&str]) -> bool {
    let fits = |name: &&str| key == *name || name.ends_with('.') && key.starts_with(name);
    names.iter().any(fits)
}
