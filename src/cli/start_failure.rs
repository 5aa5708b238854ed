//! Advice after a failed start of `serve`, if another process holds its record or a
//! port.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::anyhow;

use super::process::holder_instance;
use crate::config::Settings;
use crate::serve::control::instance::Instance;
use crate::serve::listening::{FailedAddress, ListenError};
use politesse_base::command_line::terminal_command;
use politesse_base::inert::shell_quoted;
use politesse_record::AuditError;
use politesse_robots::origin::Scheme;

/// Adds to the error of a start which process holds the record or the port, if known,
/// and how to proceed.
pub(super) async fn with_advice(error: anyhow::Error, settings: &Settings) -> anyhow::Error {
    let in_use = error
        .downcast_ref::<ListenError>()
        .and_then(ListenError::in_use);
    let is_locked = matches!(error.downcast_ref(), Some(AuditError::Locked(_)));
    if in_use.is_none() && !is_locked {
        return error;
    }
    // The process that holds the record most likely has these ports too, and another
    // port would not help a second one.
    let folder = settings.audit.path.parent().unwrap_or(Path::new(""));
    let advice = match (holder_instance(folder).await, in_use) {
        (Ok(holder), _) => held_by(&holder),
        (Err(_), Some(in_use)) => {
            let free = on_free_ports(in_use, settings);
            let line = terminal_command(format_args!("serve {free}"));
            format!("another program has the port; on a free one: {line}")
        }
        (Err(_), None) => return error,
    };
    anyhow!("{error}\n{advice}")
}

/// Describes the holder of the record.
fn held_by(holder: &Instance) -> String {
    let listen: Vec<_> = holder.listen.iter().map(ToString::to_string).collect();
    let place = match listen.is_empty() {
        true => String::new(),
        false => format!(" and listens on {}", listen.join(", ")),
    };
    let (command, pid) = (&holder.command, holder.pid);
    format!(
        "politesse {command}, process {pid}, holds this record{place}: use it, or stop it with \
         `kill {pid}`"
    )
}

/// Returns the options that replace each port in use with a free one.
pub(super) fn on_free_ports(in_use: &[FailedAddress], settings: &Settings) -> String {
    let is_taken = |address: SocketAddr, key: &str| {
        let mut taken = in_use.iter();
        taken.any(|failed| failed.address == address && failed.key == key)
    };
    let free = |address: SocketAddr, key: &str| match is_taken(address, key) {
        true => SocketAddr::new(address.ip(), 0),
        false => address,
    };
    let quoted = settings.listener.listen.iter().map(|listen| {
        let address = free(listen.address, "proxy.listen");
        match listen.scheme {
            Scheme::Https => format!("\"https://{address}\""),
            Scheme::Http => format!("\"{address}\""),
        }
    });
    let listen: Vec<_> = quoted.collect();
    let admin = free(settings.admin.listen, "admin.listen");
    let keys = [
        ("proxy.listen", format!("[{}]", listen.join(","))),
        ("admin.listen", format!("\"{admin}\"")),
    ];
    let changed = keys
        .iter()
        .filter(|(key, _)| in_use.iter().any(|failed| failed.key == *key));
    let options =
        changed.map(|(key, value)| format!("--set {}", shell_quoted(&format!("{key}={value}"))));
    options.collect::<Vec<_>>().join(" ")
}
