//! A new configuration put in force while the proxy runs: whole, or not at all.
//!
//! Everything new is built before anything is changed; then one value is
//! swapped. Requests under way keep what they began with. What the change does
//! not concern is carried over with what it remembers.

use std::sync::Arc;

use anyhow::Context as _;
use thiserror::Error;

use super::{
    Origins, Running, annotator, announce, interceptor, kept_in, origins_with, roots_digest,
};
use crate::config::Settings;
use crate::metrics::ResultLabel;
use crate::proxy::ca::Ca;
use crate::proxy::connect::Interceptor;
use crate::proxy::exchange::Proxy;
use crate::proxy::listener::InForce;

/// Keys, or sections, that what runs cannot change: sockets, the record, and
/// the form of the log.
const FIXED: [&str; 4] = ["proxy.listen", "admin.listen", "audit.", "log.format"];

/// Keys that concern what is said to origins, or what is remembered of it.
const ORIGINS: [&str; 4] = ["upstream.", "egress.", "robots.", "https.upstream_roots"];

/// Those among them that only concern decisions and answers.
const NOT_ORIGINS: [&str; 3] = ["robots.override", "robots.status.", "robots.serve_cached"];

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
            Ok((settings, in_force))
        });
        let (result, reloaded) = match built {
            Ok((settings, in_force)) => {
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

    fn build(&self, settings: &Settings) -> anyhow::Result<InForce> {
        let changed = settings.values.changed_from(&self.settings.values);
        let fixed: Vec<_> = changed.iter().filter(|key| is_among(key, &FIXED)).collect();
        if !fixed.is_empty() {
            let keys = fixed.into_iter().map(ToString::to_string).collect();
            return Err(Refused::Fixed(keys).into());
        }
        let before = self.crawlers.in_force.load();
        let Origins {
            egress,
            upstream,
            robots,
        } = self.origins(settings, &changed)?;
        let annotator = if changed.iter().any(|key| is_among(key, &["directives."])) {
            annotator(settings, &before.proxy.metrics)
        } else {
            Arc::clone(&before.proxy.annotator)
        };
        let proxy = Proxy {
            options: settings.exchange.clone(),
            policy: Arc::new(settings.policy.clone()),
            egress,
            robots,
            upstream,
            audit: Arc::clone(&self.audit),
            annotator,
            metrics: Arc::clone(&before.proxy.metrics),
        };
        Ok(InForce {
            proxy,
            interceptor: self.interceptor(settings, &changed)?,
            options: settings.listener.clone(),
        })
    }

    /// What speaks to origins: that which does, with its connections and what it
    /// was told, unless something about it has changed.
    fn origins(&self, settings: &Settings, changed: &[&str]) -> anyhow::Result<Origins> {
        let proxy = &self.crawlers.in_force.load().proxy;
        let concerns = |key: &&str| is_among(key, &ORIGINS) && !is_among(key, &NOT_ORIGINS);
        if changed.iter().any(concerns) || roots_digest(settings) != self.roots {
            let origins = origins_with(settings, &proxy.metrics, kept_in(&self.audit))?;
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
        changed: &[&str],
    ) -> anyhow::Result<Option<Arc<Interceptor>>> {
        let before = self.crawlers.in_force.load();
        let of_https = |key: &&str| is_among(key, &["https."]) && *key != "https.upstream_roots";
        match &before.interceptor {
            Some(interceptor) if !changed.iter().any(of_https) => {
                // It is there, or somebody took it away: no other is made.
                let ca = Ca::load(&settings.ca).context("the authority cannot be read again")?;
                if ca.fingerprint() == interceptor.fingerprint() {
                    return Ok(Some(Arc::clone(interceptor)));
                }
                let timeout = settings.connect.handshake_timeout;
                Ok(Some(Arc::new(Interceptor::new(Arc::new(ca), timeout)?)))
            }
            Some(_) | None => interceptor(settings),
        }
    }

    fn put_in_force(&mut self, settings: Settings, in_force: InForce) {
        let changed = settings.values.changed_from(&self.settings.values);
        tracing::info!(
            changed = changed.join(", "),
            policy_before = %self.settings.policy.digest(),
            policy = %settings.policy.digest(),
            "the configuration was reloaded"
        );
        in_force.proxy.robots.judge_by(&settings.policy);
        self.crawlers.in_force.store(Arc::new(in_force));
        announce(&settings.policy, &self.crawlers.metrics);
        self.roots = roots_digest(&settings);
        self.settings = settings;
    }
}

/// Whether a key is one of `names`, or in one of the sections among them.
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
