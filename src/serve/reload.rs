//! A new configuration put in force while the proxy runs: whole, or not at all.
//!
//! Everything new is built before anything is changed; then one value is
//! swapped. Requests under way keep what they began with. What the change does
//! not concern is carried over with what it remembers.

use std::sync::Arc;

use anyhow::Context as _;
use thiserror::Error;

use super::{
    Origins, Running, annotator, announce, capacity, files, interceptor, names, origins_with,
};
use crate::admin::AdminToken;
use crate::config::Settings;
use crate::metrics::ResultLabel;
use crate::proxy::ca::Ca;
use crate::proxy::connect::Interceptor;
use crate::proxy::exchange::Proxy;
use crate::proxy::listener::ActiveConfig;

/// Keys, or sections, that what runs cannot change: sockets, the record, and
/// the form of the log.
const FIXED: [&str; 6] = [
    "proxy.listen",
    "proxy.backlog",
    "admin.listen",
    "audit.",
    "log.format",
    "log.burst",
];

/// Keys that concern what is said to origins, or what is remembered of it.
const ORIGINS: [&str; 4] = ["upstream.", "egress.", "robots.", "https.upstream_roots"];

/// Those among them that only concern decisions and answers.
const NOT_ORIGINS: [&str; 5] = [
    "robots.override",
    "robots.status.",
    "robots.serve_cached",
    "robots.unreachable_answer",
    "robots.max_names",
];

/// Why a configuration without mistakes is not put in force.
#[derive(Debug, Error)]
enum Refused {
    /// It changes what cannot be changed.
    #[error("{} cannot be changed while the proxy runs: restart it", .0.join(", "))]
    Fixed(Vec<String>),
}

impl Running {
    /// Reads a configuration and puts it in force, whole or not at all. What
    /// came of it is told in the log and the metrics. Returns the settings if
    /// they are in force.
    pub fn reload(&mut self, read: impl FnOnce() -> anyhow::Result<Settings>) -> Option<&Settings> {
        let built = read().and_then(|settings| {
            let in_force = self.build(&settings)?;
            let token = AdminToken::open(&settings.admin.token_file)?;
            Ok((settings, in_force, token))
        });
        let (result, reloaded) = match built {
            Ok((settings, in_force, token)) => {
                self.access.set_token(&token);
                self.put_in_force(settings, in_force);
                ("successful", Some(&self.settings))
            }
            Err(error) => {
                self.crawlers.metrics.config_last_reload_successful.set(0);
                tell(&error);
                ("failed", None)
            }
        };
        let reloads = &self.crawlers.metrics.config_reloads;
        reloads.get_or_create(&ResultLabel { result }).inc();
        reloaded
    }

    fn build(&self, settings: &Settings) -> anyhow::Result<ActiveConfig> {
        let changes = self.changes(settings);
        let fixed: Vec<_> = changes.among(&FIXED).map(str::to_owned).collect();
        if !fixed.is_empty() {
            return Err(Refused::Fixed(fixed).into());
        }
        let before = &self.crawlers.in_force.load().proxy;
        let metrics = &before.metrics;
        let Origins {
            egress,
            upstream,
            robots,
        } = self.origins(settings, &changes)?;
        let proxy = Proxy {
            options: settings.exchange.clone(),
            policy: Arc::new(settings.policy.clone()),
            latest: Arc::clone(&before.latest),
            egress,
            names: if changes.concern(&["robots.max_names", "robots.user_agent"]) {
                names(settings, metrics)
            } else {
                before.names.clone()
            },
            robots,
            scheduler: Arc::clone(&before.scheduler),
            upstream,
            audit: Arc::clone(&self.audit),
            annotator: if changes.concern(&["directives."]) {
                annotator(settings, metrics)
            } else {
                Arc::clone(&before.annotator)
            },
            metrics: Arc::clone(metrics),
        };
        Ok(ActiveConfig {
            proxy,
            interceptor: self.interceptor(settings, &changes)?,
            options: settings.listener.clone(),
        })
    }

    fn changes<'a>(&self, settings: &'a Settings) -> Changes<'a> {
        Changes(settings.values.changed_from(&self.settings.values))
    }

    /// What speaks to origins: that which does, with its connections and what it
    /// was told, unless something about it has changed.
    fn origins(&self, settings: &Settings, changes: &Changes<'_>) -> anyhow::Result<Origins> {
        let proxy = &self.crawlers.in_force.load().proxy;
        let changed = changes.but(&NOT_ORIGINS).concern(&ORIGINS);
        if changed || files(settings) != self.files {
            let origins = origins_with(
                settings,
                (&proxy.metrics, &proxy.scheduler),
                Some(&self.audit),
            )?;
            let told = origins.egress.listeners(self.own.clone());
            told.context("upstream.parent cannot be dialled")?;
            return Ok(origins);
        }
        Ok(Origins {
            egress: Arc::clone(&proxy.egress),
            upstream: Arc::clone(&proxy.upstream),
            robots: Arc::clone(&proxy.robots),
        })
    }

    /// The authority is read again; if it is the same, its certificates are
    /// carried over.
    fn interceptor(
        &self,
        settings: &Settings,
        changes: &Changes<'_>,
    ) -> anyhow::Result<Option<Arc<Interceptor>>> {
        let before = self.crawlers.in_force.load();
        let changed = changes.but(&["https.upstream_roots"]).concern(&["https."]);
        let Some(kept) = before.interceptor.as_ref().filter(|_| !changed) else {
            return interceptor(settings);
        };
        // If it is gone, somebody took it away: no other is made.
        let ca = Ca::load(&settings.ca).context("the authority cannot be read again")?;
        if ca.fingerprint() == kept.fingerprint() {
            return Ok(Some(Arc::clone(kept)));
        }
        let timeout = settings.connect.handshake_timeout;
        Ok(Some(Arc::new(Interceptor::new(Arc::new(ca), timeout)?)))
    }

    fn put_in_force(&mut self, settings: Settings, in_force: ActiveConfig) {
        tracing::info!(
            changed = self.changes(&settings).0.join(", "),
            configuration_before = %self.settings.values.digest(),
            configuration = %settings.values.digest(),
            policy_before = %self.settings.policy.digest(),
            policy = %settings.policy.digest(),
            "the configuration was reloaded"
        );
        in_force.proxy.robots.set_redirect_policy(&settings.policy);
        let latest = Arc::clone(&in_force.proxy.policy);
        in_force.proxy.latest.store(latest);
        in_force.proxy.scheduler.set_options(settings.pace.clone());
        self.crawlers.in_force.store(Arc::new(in_force));
        announce(&settings.policy, &self.crawlers.metrics);
        capacity::show(&settings, &self.crawlers.metrics);
        self.files = files(&settings);
        if let Some(control) = &self.control {
            control.change(&settings.values);
        }
        self.settings = settings;
    }
}

/// The keys that a new configuration changes.
struct Changes<'a>(Vec<&'a str>);

impl<'a> Changes<'a> {
    /// Those that are one of `names`, or in one of the sections among them.
    fn among(&self, names: &[&str]) -> impl Iterator<Item = &'a str> {
        self.0.iter().copied().filter(|key| is_among(key, names))
    }

    fn concern(&self, names: &[&str]) -> bool {
        self.among(names).next().is_some()
    }

    /// The others.
    fn but(&self, names: &[&str]) -> Self {
        let others = self.0.iter().copied().filter(|key| !is_among(key, names));
        Self(others.collect())
    }
}

fn is_among(key: &str, names: &[&str]) -> bool {
    let is_in = |name: &&str| key == *name || name.ends_with('.') && key.starts_with(name);
    names.iter().any(is_in)
}

/// Every problem in a line of its own, as at the start.
fn tell(error: &anyhow::Error) {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !told.contains(&cause) {
            cause.lines().for_each(|line| tracing::error!("{line}"));
        }
        told = cause;
    }
    tracing::error!("the configuration was not reloaded, and the one before stays in force");
}
