//! The one place where the parts are built, started and stopped, in order.

pub mod capacity;
pub mod commands;
pub mod control;
mod kept;
mod reload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::capacity::bind;
use self::commands::{CommandError, CommandListener, Commands};
use self::control::Server;
use self::control::instance::Instance;
use self::kept::KeptInAudit;
use crate::admin::{self, Access, Admin, AdminToken, PaceSource};
use crate::audit::AuditLog;
use crate::clock;
use crate::config::Settings;
use crate::decision::decide::{EnforcementMode, Policy};
use crate::decision::digest::Digest;
use crate::metrics::Metrics;
use crate::pace::Scheduler;
use crate::pace::back_off_event::BackOffListener;
use crate::proxy::annotate::Annotator;
use crate::proxy::ca::Ca;
use crate::proxy::connect::{HttpsMode, Interceptor};
use crate::proxy::exchange::Proxy;
use crate::proxy::listener::{ActiveConfig, ProxyServer};
use crate::proxy::names::NameLimiter;
use crate::robots_cache::fetch::HttpFetcher;
use crate::robots_cache::store::{NoStore, SnapshotStore};
use crate::robots_cache::{CacheSources, RobotsCache};
use crate::tasks::Tasks;
use crate::upstream::client::{Roots, Upstream};
use crate::upstream::egress::{Egress, OwnAddresses};

/// The longest that a stop waits for pages of the admin listener.
const ADMIN_PATIENCE: Duration = Duration::from_secs(1);

/// A proxy that runs.
#[derive(Debug)]
pub struct Running {
    /// Where crawlers connect, ports as really bound.
    pub listen: Vec<SocketAddr>,
    /// Where people and monitoring connect.
    pub admin: SocketAddr,
    settings: Settings,
    files: [Option<Digest>; 2],
    own: OwnAddresses,
    commands: Arc<Commands>,
    control: Option<Server>,
    crawlers: Arc<ProxyServer>,
    access: Arc<Access>,
    audit: Arc<AuditLog>,
    audit_tracker: TaskTracker,
    admin_tracker: TaskTracker,
    end: CancellationToken,
}

/// Builds every part and starts to listen.
///
/// # Errors
///
/// What keeps a proxy from starting: an authority or roots that cannot be
/// read, an audit that cannot be written, a port that is taken.
pub async fn start(settings: &Settings) -> anyhow::Result<Running> {
    if settings.egress.parent.is_some() {
        tracing::warn!(
            "upstream.parent resolves the names of origins: egress.deny is held against literal \
             addresses and names, not against what names lead to there"
        );
    }
    let backlog = settings.listener.backlog;
    let listeners = bind(&settings.listener.listen, backlog)?;
    let admin_listener = bind(&[settings.admin.listen], backlog)?;
    let listen = addresses(&listeners)?;
    let admin = addresses(&admin_listener)?;
    let interceptor = interceptor(settings)?;
    let metrics = Arc::new(Metrics::default());
    let audit_tracker = TaskTracker::new();
    let audit = Arc::new(AuditLog::open(
        &settings.audit,
        Arc::clone(&metrics),
        &audit_tracker,
    )?);
    // Behind the record, whose lock keeps another process from making it, too.
    let token = AdminToken::open(&settings.admin.token_file)?;
    let access = Arc::new(Access::new(&token, Arc::clone(&metrics)));
    let own = OwnAddresses::from([&listen[..], &admin].concat());
    let files = files(settings);
    let scheduler = Arc::new(scheduler(settings, (&audit, &metrics)));
    let shared = (
        Arc::clone(&audit),
        Arc::clone(&metrics),
        Arc::clone(&scheduler),
    );
    let proxy = proxy(settings, shared, &own)?;
    let in_force = ActiveConfig {
        proxy,
        interceptor,
        options: settings.listener.clone(),
    };
    announce(&settings.policy, &metrics);
    capacity::show(settings, &metrics);
    let crawlers = Arc::new(crawlers(in_force, &metrics));
    let (admin_tracker, end) = (TaskTracker::new(), CancellationToken::new());
    for listener in admin_listener {
        let page = Admin {
            audit: Arc::clone(&audit),
            metrics: Arc::clone(&metrics),
            stop: crawlers.stop.clone(),
            access: Arc::clone(&access),
            pace: pace_source(&scheduler),
        };
        admin::listen(page, listener, &admin_tracker, end.clone());
    }
    for listener in listeners {
        crawlers.listen(listener);
    }
    Ok(Running {
        listen,
        admin: admin.first().copied().context("no admin listener")?,
        settings: settings.clone(),
        files,
        commands: Arc::new(Commands::new(&crawlers, own.clone())),
        control: None,
        own,
        crawlers,
        access,
        audit,
        audit_tracker,
        admin_tracker,
        end,
    })
}

/// Notes that a configuration is in force, and tells what its operator may
/// have forgotten: that nothing is refused, and which overrides have ended, so
/// that they do nothing and can go.
fn announce(policy: &Policy, metrics: &Metrics) {
    let reports = policy.mode() == EnforcementMode::Report;
    let now = clock::now();
    metrics.report_mode.set(reports.into());
    metrics.config_last_reload_successful.set(1);
    metrics
        .config_last_reload_timestamp_seconds
        .set(now.as_second());
    if reports {
        tracing::warn!(
            "enforcement.mode is \"report\": what robots.txt disallows is forwarded and \
             recorded, not refused"
        );
    }
    for entry in policy
        .overrides()
        .iter()
        .filter(|entry| entry.has_ended(now))
    {
        tracing::warn!(
            origin = %entry.origin,
            action = entry.action.as_str(),
            reason = entry.reason,
            until = entry.action.until().map(tracing::field::display),
            "a robots.override has ended, and is not in force"
        );
    }
}

/// What all connections of crawlers share.
fn crawlers(in_force: ActiveConfig, metrics: &Arc<Metrics>) -> ProxyServer {
    ProxyServer {
        in_force: ArcSwap::from_pointee(in_force),
        metrics: Arc::clone(metrics),
        open: AtomicUsize::new(0),
        tasks: Tasks::default(),
        stop: CancellationToken::new(),
        abort: CancellationToken::new(),
    }
}

/// What speaks to origins.
#[derive(Debug)]
pub struct Origins {
    /// Which addresses may be dialled.
    pub egress: Arc<Egress>,
    /// The way out.
    pub upstream: Arc<Upstream>,
    /// What origins said.
    pub robots: Arc<RobotsCache>,
}

/// Builds what speaks to origins, with metrics that nobody reads.
///
/// # Errors
///
/// Roots that cannot be read.
pub fn origins(settings: &Settings) -> anyhow::Result<Origins> {
    let metrics = Arc::new(Metrics::default());
    let scheduler = Scheduler::new(
        settings.pace.clone(),
        Arc::clone(&metrics),
        Tasks::default(),
    );
    origins_with(settings, (&metrics, &Arc::new(scheduler)), None)
}

/// Builds them; what origins said is kept in `audit` for the next run.
fn origins_with(
    settings: &Settings,
    (metrics, scheduler): (&Arc<Metrics>, &Arc<Scheduler>),
    audit: Option<&Arc<AuditLog>>,
) -> anyhow::Result<Origins> {
    // Connections to origins end with their idle time or with the process: no
    // crawler waits for them, so neither does a stop.
    let tasks = Tasks::default();
    let egress = Arc::new(Egress::new(
        settings.egress.clone(),
        Arc::clone(metrics),
        tasks.clone(),
    ));
    let upstream = Upstream::new(
        settings.upstream.clone(),
        Arc::clone(&egress),
        Arc::clone(metrics),
        tasks.clone(),
    )?;
    let upstream = Arc::new(upstream);
    let store: Arc<dyn SnapshotStore> = match audit {
        Some(audit) => Arc::new(KeptInAudit {
            audit: Arc::clone(audit),
            egress: Arc::clone(&egress),
        }),
        None => Arc::new(NoStore),
    };
    let (way_out, max_bytes) = (Arc::clone(&upstream), settings.robots.max_bytes);
    let fetcher = HttpFetcher::new(way_out, Arc::clone(scheduler), max_bytes);
    let robots = RobotsCache::new(
        settings.robots.clone(),
        CacheSources { fetcher, store },
        Arc::clone(metrics),
        tasks.0,
    );
    Ok(Origins {
        egress,
        upstream,
        robots: Arc::new(robots),
    })
}

/// The parts of an exchange; `own` are our listeners, which nobody may reach
/// through us.
fn proxy(
    settings: &Settings,
    (audit, metrics, scheduler): (Arc<AuditLog>, Arc<Metrics>, Arc<Scheduler>),
    own: &OwnAddresses,
) -> anyhow::Result<Proxy> {
    let Origins {
        egress,
        upstream,
        robots,
    } = origins_with(settings, (&metrics, &scheduler), Some(&audit))?;
    let told = egress.listeners(own.clone());
    told.context("upstream.parent cannot be dialled")?;
    let policy = Arc::new(settings.policy.clone());
    Ok(Proxy {
        options: settings.exchange.clone(),
        latest: Arc::new(ArcSwap::new(Arc::clone(&policy))),
        policy,
        egress,
        names: names(settings, &metrics),
        robots,
        scheduler,
        upstream,
        audit,
        annotator: annotator(settings, &metrics),
        metrics,
    })
}

/// What paces all that goes out, for as long as the process lives. A host that
/// asks for less is on record, and left alone by the next process too.
fn scheduler(settings: &Settings, (audit, metrics): (&Arc<AuditLog>, &Arc<Metrics>)) -> Scheduler {
    let options = settings.pace.clone();
    let scheduler = Scheduler::new(options, Arc::clone(metrics), Tasks::default());
    scheduler.restore_back_offs(audit.saved_back_offs());
    let record = Arc::clone(audit);
    let listener = BackOffListener(Box::new(move |event| record.record_event(event)));
    scheduler.set_back_off_listener(listener);
    scheduler
}

fn pace_source(scheduler: &Arc<Scheduler>) -> PaceSource {
    let scheduler = Arc::clone(scheduler);
    PaceSource(Arc::new(move || scheduler.snapshot()))
}

fn names(settings: &Settings, metrics: &Metrics) -> Option<Arc<NameLimiter>> {
    let names = |most| Arc::new(NameLimiter::new(most, metrics.robots_max_names.clone()));
    settings.max_names.map(names)
}

fn annotator(settings: &Settings, metrics: &Arc<Metrics>) -> Arc<Annotator> {
    let options = settings.annotate.clone();
    Arc::new(Annotator::new(options, Arc::clone(metrics)))
}

fn interceptor(settings: &Settings) -> anyhow::Result<Option<Arc<Interceptor>>> {
    if settings.connect.mode == HttpsMode::Refuse {
        return Ok(None);
    }
    let ca = Arc::new(Ca::open(&settings.ca)?);
    let interceptor = Interceptor::new(ca, settings.connect.handshake_timeout)?;
    Ok(Some(Arc::new(interceptor)))
}

/// What the files hold that what speaks to origins is built from: the roots,
/// and the credentials for a parent. One that cannot be read is told by who
/// needs it.
fn files(settings: &Settings) -> [Option<Digest>; 2] {
    let roots = match &settings.upstream.roots {
        Roots::File(path) => Some(path),
        Roots::System | Roots::Webpki => None,
    };
    [roots, settings.upstream.parent_auth.as_ref()]
        .map(|path| std::fs::read(path?).ok().map(|bytes| Digest::of(&bytes)))
}

fn addresses(listeners: &[TcpListener]) -> anyhow::Result<Vec<SocketAddr>> {
    listeners
        .iter()
        .map(|listener| listener.local_addr().context("a listener has no address"))
        .collect()
}

impl Running {
    /// Opens the control socket, by which `politesse run` finds this proxy.
    /// `command` says what this process was started as.
    ///
    /// # Errors
    ///
    /// The file system's, or a path that no socket can have.
    pub fn open_control(&mut self, command: &str) -> std::io::Result<()> {
        let folder = self.settings.audit.folder()?;
        let instance = Instance {
            pid: std::process::id(),
            command: command.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock::now(),
            listen: self.listen.clone(),
            admin: self.admin,
            configuration: self.settings.values.digest().to_string(),
            keys: self.settings.values.digests(),
            control: folder.join(control::SOCKET),
        };
        self.control = Some(Server::open(folder, instance, Arc::clone(&self.commands))?);
        Ok(())
    }

    /// Serves the listener of a command, and counts its requests apart.
    ///
    /// # Errors
    ///
    /// [`CommandError`].
    pub fn serve_command(&self, listener: TcpListener) -> Result<CommandListener, CommandError> {
        self.commands.open(listener)
    }

    /// The commands that are served.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Stops: accepts no more, puts off who waits for a turn, lets exchanges
    /// finish until `proxy.shutdown_timeout` or until `hurry` is done, then
    /// writes the audit to its end.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        if let Some(control) = &self.control {
            control.stop_accepting();
        }
        self.crawlers.stop.cancel();
        self.crawlers.in_force.load().proxy.scheduler.close();
        let tasks = &self.crawlers.tasks.0;
        tasks.close();
        let longest = self.crawlers.in_force.load().options.shutdown_timeout;
        let patience = timeout(longest, tasks.wait());
        let finished = tokio::select! {
            finished = patience => finished.is_ok(),
            () = hurry => false,
        };
        if !finished {
            tracing::warn!(connections = tasks.len(), "exchanges cut off by the stop");
            self.crawlers.abort.cancel();
            tasks.wait().await;
        }
        if let Some(control) = &self.control {
            // Those that joined are told their counts; one that reads nothing
            // must not hold the stop.
            let _ = timeout(ADMIN_PATIENCE, control.ended()).await;
        }
        self.end.cancel();
        self.admin_tracker.close();
        // Whoever asks for a page can ask again elsewhere; the audit is next.
        let _ = timeout(ADMIN_PATIENCE, self.admin_tracker.wait()).await;
        self.audit.close();
        self.audit_tracker.close();
        self.audit_tracker.wait().await;
    }
}
