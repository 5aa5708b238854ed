//! Arguments of `check`, and everything that its URLs are judged by: the configuration,
//! or only the standard.
//!
//! Does not know where a robots.txt comes from.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;

use crate::cli::configuration::ConfigurationRequest;
use crate::cli::output::{Exit, Usage};
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::inert::inert;
use politesse_decision::decide::{Inquiry, Policy, Reason, Ruling, Unauthorized, Verdict};
use politesse_decision::inquiry::Identities;
use politesse_directives::PurposeSet;
use politesse_robots::crawler::Crawler;
use politesse_robots::origin::Target;
use politesse_robots::{Dialect, RobotsTxt};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Product token or whole User-Agent value.
    #[arg(long, value_name = "AGENT")]
    pub(super) agent: Option<String>,
    /// A saved robots.txt, or - for standard input; without it the file is fetched.
    #[arg(long, value_name = "FILE")]
    pub(super) robots: Option<String>,
    #[command(flatten)]
    pub(super) terms: TermArguments,
    /// Prints one JSON object per URL instead of sentences.
    #[arg(long)]
    pub(super) json: bool,
    /// Reads and prints JSON Lines; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "robots", "json", "urls"])]
    pub(super) batch: Option<String>,
    /// A folder of saved files, named by host, to judge --urls by.
    #[arg(long, value_name = "DIR", requires = "list", conflicts_with_all = ["batch", "robots", "json", "urls"])]
    pub(super) robots_dir: Option<PathBuf>,
    /// A file with one URL per line, or - for standard input.
    #[arg(long = "urls", value_name = "FILE", requires = "robots_dir")]
    pub(super) list: Option<String>,
    /// URLs to judge.
    #[arg(value_name = "URL", required_unless_present_any = ["batch", "robots_dir"])]
    pub(super) urls: Vec<String>,
}

/// Arguments that select the text and the readings that URLs are judged by.
#[derive(Debug, Args)]
pub(crate) struct TermArguments {
    /// Text that files are read by: rfc9309, draft-2019, 1996, 1994, conner-2.0 or
    /// google.
    #[arg(long, value_name = "DIALECT")]
    dialect: Option<Dialect>,
    /// Judges every reading of a URL, as the proxy does.
    #[arg(long)]
    as_proxy: bool,
}

impl TermArguments {
    /// Reads the configuration, with the dialect of the command line.
    ///
    /// # Errors
    ///
    /// Those of [`ConfigurationRequest::settings`].
    pub(super) fn settings(
        &self,
        configuration: ConfigurationRequest<'_>,
    ) -> Result<Settings, Usage> {
        let mut settings = configuration.settings()?;
        if let Some(dialect) = self.dialect {
            settings.policy = settings.policy.with(|terms| terms.dialect = dialect);
            settings.robots.policy = settings.robots.policy.with(|terms| terms.dialect = dialect);
        }
        Ok(settings)
    }
}

/// Everything that a URL is judged by, except its robots.txt.
#[derive(Clone)]
pub(crate) struct CheckContext {
    /// Policy that judges: with `--as-proxy` the proxy's, otherwise the same policy
    /// limited to the URL as sent.
    pub(crate) policy: Arc<Policy>,
    /// Policy of the proxy, which judges every reading of a URL.
    pub(super) proxy_policy: Arc<Policy>,
    identities: Arc<Identities>,
    /// Maximum number of bytes of a robots.txt that are read.
    pub(crate) bytes_max: usize,
    /// Time of all decisions.
    pub(crate) at: Timestamp,
}

impl CheckContext {
    /// Returns the context for files that the user brings: only the standard, unless a
    /// configuration was named. A file that happens to be on the machine must not
    /// change the answer to a question that brings its own robots.txt.
    ///
    /// # Errors
    ///
    /// Those of [`TermArguments::settings`].
    pub(crate) fn offline(
        arguments: &TermArguments,
        configuration: ConfigurationRequest<'_>,
    ) -> Result<Self, Usage> {
        if configuration.file.is_some() {
            let settings = arguments.settings(configuration)?;
            return Ok(Self::configured(arguments, &settings));
        }
        let standard = Policy::new(Unauthorized::Allow);
        let context = Self::new(arguments, standard);
        Ok(match arguments.dialect {
            Some(dialect) => context.in_dialect(dialect),
            None => context,
        })
    }

    /// Returns the context for the configuration.
    pub(super) fn configured(arguments: &TermArguments, settings: &Settings) -> Self {
        Self {
            identities: Arc::new(settings.exchange.request.identities.clone()),
            bytes_max: settings.robots.max_bytes,
            ..Self::new(arguments, settings.policy.clone())
        }
    }

    /// Returns the context in which the proxy decides with the configuration, at a
    /// given time.
    pub(super) fn of_proxy(settings: &Settings, at: Timestamp) -> Self {
        let policy = Arc::new(settings.policy.clone());
        Self {
            proxy_policy: Arc::clone(&policy),
            policy,
            identities: Arc::new(settings.exchange.request.identities.clone()),
            bytes_max: settings.robots.max_bytes,
            at,
        }
    }

    fn new(arguments: &TermArguments, policy: Policy) -> Self {
        let proxy_policy = Arc::new(policy);
        Self {
            policy: if arguments.as_proxy {
                Arc::clone(&proxy_policy)
            } else {
                Arc::new(proxy_policy.as_sent())
            },
            proxy_policy,
            identities: Arc::default(),
            // RFC 9309, section 2.5: at least this much must be parsed.
            bytes_max: RobotsTxt::BYTES_MIN,
            // One time for all URLs, so that an override does not end halfway.
            at: clock::now(),
        }
    }

    /// Returns the context for files read by `dialect`.
    pub(super) fn in_dialect(&self, dialect: Dialect) -> Self {
        let in_dialect =
            |policy: &Policy| Arc::new(policy.clone().with(|terms| terms.dialect = dialect));
        Self {
            policy: in_dialect(&self.policy),
            proxy_policy: in_dialect(&self.proxy_policy),
            ..self.clone()
        }
    }

    /// Returns the dialect that files are read by.
    pub(super) fn dialect(&self) -> Dialect {
        self.policy.terms().dialect
    }

    /// Builds the inquiry of `agent` for a URL. The crawler has no address, because no
    /// client has connected.
    pub(crate) fn inquiry(&self, agent: Option<&str>, target: Target) -> Inquiry {
        Inquiry {
            crawler: self.crawler(agent),
            target,
            method: "GET".to_owned(),
        }
    }

    /// Returns the policy for the crawler of a `User-Agent`, with the purposes of its
    /// entry.
    pub(crate) fn policy_for(&self, agent: Option<&str>) -> Arc<Policy> {
        let known = self.identities.known(agent.map(str::as_bytes), None);
        let entry = known.map(|known| known.identity);
        match self.identities.preferences(entry, PurposeSet::default()) {
            None => Arc::clone(&self.policy),
            Some(preferences) => Arc::new(self.policy.for_purposes(preferences)),
        }
    }

    /// Returns the context for questions about one crawler.
    pub(super) fn for_agent(self, agent: Option<&str>) -> Self {
        Self {
            policy: self.policy_for(agent),
            ..self
        }
    }

    /// Returns the crawler of a `User-Agent`, without an address.
    pub(crate) fn crawler(&self, agent: Option<&str>) -> Crawler {
        self.identities.crawler(agent.map(str::as_bytes), None)
    }
}

/// Reads a URL as users write it: blanks and control characters are escaped.
///
/// # Errors
///
/// [`Usage::Arguments`] if it is not the URL of a site.
pub(crate) fn target(url: &str) -> Result<Target, Usage> {
    // A crawler would escape them before it sends the request. Lists of URLs contain
    // blanks that were never escaped.
    let is_odd = |byte: u8| matches!(byte, 0..=b' ' | 0x7f);
    let escaped: Cow<'_, str> = if url.bytes().any(is_odd) {
        let escaped = url.chars().map(|letter| match letter {
            '\0'..=' ' | '\x7f' => format!("%{:02X}", u32::from(letter)),
            _ => letter.to_string(),
        });
        escaped.collect::<String>().into()
    } else {
        url.into()
    };
    escaped
        .parse()
        .map_err(|error| Usage::Arguments(inert(&format!("{url}: {error}"))))
}

/// Returns the exit code for a ruling.
pub(super) fn exit_of(ruling: &Ruling) -> Exit {
    match (ruling.verdict, ruling.reason) {
        (Verdict::Allow, _) => Exit::Done,
        // The site may allow it: its rules could not be read.
        (Verdict::Disallow, Reason::Unreachable | Reason::Egress) => Exit::Unknown,
        (Verdict::Disallow | Verdict::Later, _) => Exit::Not,
    }
}
