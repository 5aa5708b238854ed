//! `doctor`: looks for problems that keep a proxy with this configuration from working,
//! or a client from using it, and says how to fix each.
//!
//! Changes nothing, and contacts no other host. Checks that a start makes itself use
//! the same functions.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use http::Uri;
use jiff::Timestamp;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::authority::existing;
use super::configuration::{ConfigurationRequest, check_conflicts, is_closed, nearest};
use super::output::{Exit, print};
use super::process::{holder_instance, reachable, runtime};
use super::run::environment::PROXY_VARIABLES;
use super::start_failure::on_free_ports;
use super::trust::{TrustingClient, is_trusted};
use crate::config::Settings;
use crate::serve::capacity::shortages;
use crate::serve::control::instance::Instance;
use crate::serve::files_check::unusable_files;
use crate::serve::listening::FailedAddress;
use politesse_base::clock;
use politesse_base::command_line::{command, terminal_command};
use politesse_base::inert::inert;
use politesse_decision::policy::EnforcementMode;
use politesse_proxy::ca::Ca;
use politesse_proxy::connect::HttpsMode;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::{Direction, free_bytes};

/// Free bytes below which a disk counts as full: a day of a busy crawl.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// Timeout for the system's answer about `localhost`.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Seconds by which the clock may be behind the times that were written earlier.
const CLOCK_TOLERANCE_S: i64 = 60;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// A client in this shell, which has to trust the CA.
    #[arg(long = "for", value_name = "CLIENT")]
    client: Option<TrustingClient>,
}

/// Result of one check.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// Nothing to do.
    Fine(String),
    /// Works, but perhaps not as intended.
    Warning(String),
    /// Does not work.
    Fault(String),
}

use Finding::{Fault, Fine, Warning};

/// Prints the result of each check on one line. Code 1 if there is a fault.
pub(super) fn doctor(
    arguments: &DoctorArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let settings = configuration.settings()?;
    check_conflicts(&settings)?;
    let folder = settings.audit.path.parent().unwrap_or(Path::new(""));
    if let Some(owner) = closed_folder(folder) {
        print(&line(&owner))?;
        return Ok(Exit::Not);
    }
    let holder = runtime()?.block_on(holder_instance(folder)).ok();
    let mut findings = vec![configured(&settings)];
    findings.extend(places(&settings));
    findings.extend(
        unusable_files(&settings)
            .iter()
            .map(|error| Fault(format!("{error:#}"))),
    );
    findings.extend(mode(&settings));
    findings.extend(unverified(&settings));
    findings.push(match &holder {
        Some(holder) => running(holder, &settings),
        None => ports(&settings),
    });
    let ca = existing(&settings);
    findings.push(authority(arguments.client, &settings, &ca));
    findings.push(clock(&settings, ca.as_ref().ok()));
    findings.push(disk(folder));
    findings.push(names(&settings));
    findings.extend(shortages(&settings).into_iter().map(Warning));
    let listen = match &holder {
        Some(holder) => holder.listen.clone(),
        None => settings
            .listener
            .listen
            .iter()
            .map(|listen| listen.address)
            .collect(),
    };
    let variable = |name: &str| std::env::var(name).ok();
    findings.extend(proxy_variables(&listen, &variable));
    let text: String = findings.iter().map(line).collect();
    print(&text)?;
    let is_broken = findings.iter().any(|finding| matches!(finding, Fault(_)));
    Ok(if is_broken { Exit::Not } else { Exit::Done })
}

fn line(finding: &Finding) -> String {
    match finding {
        Fine(text) => format!("ok       {text}\n"),
        Warning(text) => format!("warning  {text}\n"),
        Fault(text) => format!("fault    {text}\n"),
    }
}

fn configured(settings: &Settings) -> Finding {
    Fine(match &settings.file {
        Some(file) => format!("configuration: {}", file.display()),
        None => "configuration: no file, built-in defaults".to_owned(),
    })
}

/// Reports whether this user may not open the folder of the record. Every other check
/// would then be about the user, not about the proxy.
fn closed_folder(folder: &Path) -> Option<Finding> {
    is_closed(folder).then(|| {
        Fault(format!(
            "the folder of the record, {}, is not open to this user: run this as its owner, such \
             as `runuser -u politesse -- politesse doctor`; or use a configuration of your own, \
             ~/.config/politesse/politesse.toml, which may be empty",
            folder.display()
        ))
    })
}

/// Checks whether the files that a start creates could be created, and who would own
/// them.
fn places(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = [
        ("the record (audit.store)", &settings.audit.path),
        ("the CA (https.ca_key)", &settings.ca.key),
        ("the token (admin.token_file)", &settings.admin.token_file),
    ];
    for (what, file) in files {
        let place = nearest(file);
        // An existing file need not be writable: a CA may be mounted read-only.
        if place != file && access(place, Access::WRITE_OK).is_err() {
            let text = format!("{what} cannot be written: {} is closed", place.display());
            findings.push(Fault(text));
        }
        let owner = place.metadata().map_or(0, |found| found.uid());
        // The service could not read files that root creates there.
        if geteuid().is_root() && owner != 0 {
            findings.push(Warning(format!(
                "{what} belongs to user {owner}, and you are root: run commands that write to it \
                 as that user, such as `setpriv --reuid {owner} --clear-groups --reset-env …`"
            )));
        }
    }
    findings
}

/// Warns about report mode, which is easily left on after a trial.
fn mode(settings: &Settings) -> Option<Finding> {
    let is_report = settings.policy.terms().mode == EnforcementMode::Report;
    let text = "enforcement.mode is \"report\": nothing is refused by robots.txt; set it to \
                \"enforce\" when the trial is over";
    is_report.then(|| Warning(text.to_owned()))
}

/// Warns about hosts whose certificates are not verified: an exception may outlive its
/// reason.
fn unverified(settings: &Settings) -> Option<Finding> {
    let exceptions = settings.policy.terms().tls.iter();
    let unverified = exceptions.filter(|exception| !exception.terms.verify);
    let hosts: Vec<_> = unverified
        .map(|exception| format!("{} ({})", exception.host, exception.reason))
        .collect();
    let text = format!(
        "upstream.tls: the certificates of these hosts are not verified: {}",
        hosts.join(", ")
    );
    (!hosts.is_empty()).then_some(Warning(text))
}

/// Describes the process that holds the record, and compares its configuration.
fn running(holder: &Instance, settings: &Settings) -> Finding {
    let (command, pid) = (&holder.command, holder.pid);
    let keys = holder.keys_that_differ(&settings.values);
    if keys.is_empty() {
        return Fine(format!("politesse {command} runs, process {pid}"));
    }
    Warning(format!(
        "politesse {command}, process {pid}, runs with an older or another configuration; \
         different here: {}. To make it read the file again: kill -HUP {pid}; for keys that its \
         log then names, restart it",
        keys.join(", ")
    ))
}

/// Tries to bind the ports, which should be free because no process holds this record.
fn ports(settings: &Settings) -> Finding {
    let crawlers = settings.listener.listen.iter();
    let all = crawlers
        .map(|listen| (listen.address, "proxy.listen"))
        .chain([(settings.admin.listen, "admin.listen")]);
    let failed: Vec<_> = all
        .filter_map(|(address, key)| {
            let source = TcpListener::bind(address).err()?;
            Some(FailedAddress {
                key,
                address,
                source,
            })
        })
        .collect();
    if failed.is_empty() {
        let start = command("serve");
        return Fine(format!(
            "no proxy runs with this record, and its ports are free: {start}"
        ));
    }
    let faults = failed.iter().map(|failed| {
        let FailedAddress {
            key,
            address,
            source,
        } = failed;
        format!("{address} ({key}): {source}")
    });
    let told = faults.collect::<Vec<_>>().join("; ");
    let free = on_free_ports(&failed, settings);
    let start = terminal_command(format_args!("serve {free}"));
    Fault(format!("cannot listen on {told}. On free ports: {start}"))
}

/// Checks whether there is an authority, and whether the client trusts it.
fn authority(
    client: Option<TrustingClient>,
    settings: &Settings,
    ca: &anyhow::Result<Ca>,
) -> Finding {
    if settings.connect.mode == HttpsMode::Refuse {
        return Fine("https.mode is \"refuse\": no client has to trust a CA".to_owned());
    }
    let ca = match ca {
        Ok(ca) => ca,
        Err(error) => return Warning(format!("{error:#}")),
    };
    let path = settings.ca.cert.display();
    let Some(client) = client else {
        let ask = command("doctor --for CLIENT");
        return Fine(format!("CA: {path}; whether a client trusts it: {ask}"));
    };
    let word = client.as_str();
    let how = command(format_args!("ca trust --for {word}"));
    // In the order `None`, `Some(false)`, `Some(true)`: the least trusted root decides.
    let trusted = ca.roots().map(|root| is_trusted(client, root)).min();
    match trusted.flatten() {
        Some(true) => Fine(format!("{word} trusts the CA {path}")),
        Some(false) => Fault(format!("{word} does not trust the CA {path}: {how}")),
        None => Warning(format!(
            "whether {word} trusts the CA {path} is not known here: {how}"
        )),
    }
}

/// Compares the clock with the times in the record and in the CA.
fn clock(settings: &Settings, ca: Option<&Ca>) -> Finding {
    let now = clock::now();
    let mut newest = None;
    let read = AuditReader::open(&settings.audit.path).and_then(|reader| {
        reader.visit_decisions(&DecisionFilter::default(), Direction::NewestFirst, |row| {
            newest = Some(row.at);
            ControlFlow::Break(())
        })
    });
    // There may be no record yet; other checks find one that cannot be read.
    drop(read);
    let begin = ca.and_then(Ca::begins_at);
    let made = begin.and_then(|begin| Timestamp::from_second(begin).ok());
    let known = [(newest, "the record"), (made, "the CA")];
    let ahead = known.into_iter().find_map(|(time, what)| {
        let time = time?;
        (now.as_second() + CLOCK_TOLERANCE_S < time.as_second()).then_some((time, what))
    });
    match ahead {
        None => Fine(format!("clock: {now}")),
        Some((time, what)) => Fault(format!(
            "the clock says {now}, and {what} was written at {time}: set the clock (NTP), or \
             certificates are not valid yet and entries are out of order"
        )),
    }
}

/// Checks the free space on the disk of the record.
fn disk(folder: &Path) -> Finding {
    let place = nearest(folder);
    let free = match free_bytes(place) {
        Ok(free) => free,
        Err(error) => {
            let place = place.display();
            return Fault(format!("the disk of {place} does not answer: {error}"));
        }
    };
    let text = format!("{} MiB are free at {}", free >> 20, folder.display());
    match free < FREE_BYTES_MIN {
        false => Fine(format!("disk: {text}")),
        true => Fault(format!(
            "{text}: on a full disk every request is refused. Free some, or set audit.retention"
        )),
    }
}

/// Asks the system's resolver for `localhost`, and checks that a name server is
/// configured.
fn names(settings: &Settings) -> Finding {
    let (sender, receiver) = mpsc::channel();
    // A lookup cannot be cancelled: if it hangs, the thread ends with the process.
    thread::spawn(move || {
        let found = dns_lookup::lookup_host("localhost").map(Iterator::count);
        let _ = sender.send(found.unwrap_or_default());
    });
    if receiver.recv_timeout(LOOKUP_TIMEOUT).unwrap_or_default() == 0 {
        let text = "the system does not know localhost, or takes more than 5 s: see \
                    /etc/nsswitch.conf and /etc/hosts";
        return Fault(text.to_owned());
    }
    let configured = fs::read("/etc/resolv.conf").unwrap_or_default();
    let mut lines = configured.split(|byte| *byte == b'\n');
    let has_parent = settings.egress.parent.is_some();
    if has_parent || lines.any(|line| line.starts_with(b"nameserver")) {
        return Fine("names: the system's resolver answers".to_owned());
    }
    let text = "/etc/resolv.conf names no name server: sites are not found unless they are in \
                /etc/hosts or upstream.resolve";
    Warning(text.to_owned())
}

/// Compares the proxy variables of this shell with the addresses of the proxy.
fn proxy_variables(
    listen: &[SocketAddr],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    // Port 0 is chosen at the start.
    let known = listen.iter().filter(|address| address.port() != 0);
    let own: Vec<_> = known.map(reachable).collect();
    let Some(first) = own.first() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let set = PROXY_VARIABLES.map(|name| (name, variable(name).filter(|value| !value.is_empty())));
    for (name, value) in &set {
        let Some(value) = value else { continue };
        if !own.iter().any(|address| leads_to(value, *address)) {
            // Only the host and port: the rest of the value may hold a password.
            let url = value.trim_end_matches('/').parse::<Uri>().ok();
            let place = url.as_ref().and_then(|url| {
                let port = url.port_u16().unwrap_or(80);
                Some(format!("{}:{port}", url.host()?))
            });
            let shown = place.as_deref().unwrap_or("no address");
            findings.push(Warning(format!(
                "{name} leads to {shown}, which is not this proxy: export {name}=http://{first}"
            )));
        }
    }
    for name in ["no_proxy", "NO_PROXY"] {
        let value = variable(name).filter(|value| !value.is_empty());
        let is_used = set.iter().any(|(_, value)| value.is_some());
        if let Some(value) = value.filter(|_| is_used) {
            findings.push(Warning(format!(
                "{name} is {}: these hosts are asked without this proxy; unset {name}",
                inert(&value)
            )));
        }
    }
    if findings.is_empty() && set.iter().any(|(_, value)| value.is_some()) {
        findings.push(Fine(format!(
            "clients of this shell use the proxy, {first}"
        )));
    }
    findings
}

/// Reports whether a variable's value, a URL or a host with a port, leads to `address`.
fn leads_to(value: &str, address: SocketAddr) -> bool {
    let Ok(url) = value.trim_end_matches('/').parse::<Uri>() else {
        return false;
    };
    let is_proxy = matches!(url.scheme_str(), None | Some("http" | "https"));
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_host = match host.parse::<IpAddr>() {
        Ok(ip) => ip == address.ip(),
        // Another name may also belong to this machine.
        Err(_) => host != "localhost" || address.ip().is_loopback(),
    };
    is_proxy && is_host && url.port_u16() == Some(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<Finding> {
        let listen = [
            "127.0.0.1:3128".parse().unwrap(),
            "[::1]:3128".parse().unwrap(),
        ];
        let of = |name: &str| {
            let mut set = variables.iter();
            let value = set.find(|(known, _)| *known == name);
            value.map(|(_, value)| (*value).to_owned())
        };
        proxy_variables(&listen, &of)
    }

    // Ours.
    #[test]
    fn a_variable_that_points_elsewhere_is_reported_with_the_right_value() {
        for right in [
            "http://127.0.0.1:3128",
            "127.0.0.1:3128/",
            "http://FooBot:TOKEN@127.0.0.1:3128",
            "http://localhost:3128",
            "http://[::1]:3128",
            "https://proxy.example:3128",
        ] {
            let findings = found(&[("http_proxy", right)]);
            assert!(matches!(findings[..], [Fine(_)]), "{right}: {findings:?}");
        }
        for wrong in [
            "http://127.0.0.1:8080",
            "http://127.0.0.2:3128",
            "http://localhost",
            "x",
            "socks5://127.0.0.1:3128",
        ] {
            let findings = found(&[("https_proxy", wrong)]);
            let told = "which is not this proxy: export https_proxy=http://127.0.0.1:3128";
            let is_told = matches!(&findings[..], [Warning(text)] if text.ends_with(told));
            assert!(is_told, "{wrong}: {findings:?}");
        }
        assert_eq!(found(&[("no_proxy", "*")]), [], "no proxy is used");
        let both = found(&[
            ("http_proxy", "http://127.0.0.1:3128"),
            ("NO_PROXY", "a.example"),
        ]);
        assert!(
            matches!(&both[..], [Warning(text)] if text.contains("unset NO_PROXY")),
            "{both:?}"
        );
        assert_eq!(found(&[]), []);
        let secret = found(&[("http_proxy", "http://joe:S3CRET@corp.example:8080")]);
        assert!(!format!("{secret:?}").contains("S3CRET"), "{secret:?}");
    }
}
