//! Orders that remove data from a record, carried out by the running proxy or in its
//! place.

use std::env;
use std::sync::Arc;

use http::Method;
use rustix::process::getuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::TaskTracker;

use crate::cli::admin_api::{ApiError, ApiRequest, ask, escape};
use crate::cli::process::runtime;
use crate::config::Settings;
use politesse_admin::{REASON_BYTES_MAX, is_reason};
use politesse_record::{AuditError, AuditLog, OrderReason, SystemUser, check_in_use};

/// Name of the channel in the event of a removal that a command carried out itself.
pub(super) const BY_COMMAND: &str = "command";

/// Reads the reason of an order.
pub(super) fn reason(text: &str) -> Result<String, String> {
    match is_reason(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "one line of 1 to {REASON_BYTES_MAX} bytes is wanted"
        )),
    }
}

/// Adds the user of the operating system to a reason.
pub(super) fn reason_of_user(why: &str) -> OrderReason {
    // The names in the environment can be forged; the number comes from the kernel.
    let named = |variable: &str| env::var(variable).ok().filter(|name| is_reason(name));
    OrderReason {
        why: why.to_owned(),
        user: Some(SystemUser {
            uid: getuid().as_raw(),
            name: named("USER").or_else(|| named("LOGNAME")),
            sudo_user: named("SUDO_USER"),
        }),
    }
}

/// Carries out an order: with `stopped` on a record that no proxy writes to, otherwise
/// with `running`. Waits until the removal by `stopped` is complete.
pub(super) fn carry_out<T>(
    settings: &Settings,
    stopped: impl AsyncFnOnce(&Arc<AuditLog>) -> anyhow::Result<T>,
    running: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match runtime()?.block_on(in_stopped(settings, stopped)) {
        Err(error) if matches!(error.downcast_ref(), Some(AuditError::Locked(_))) => {
            check_in_use(&settings.audit.path)?;
            running()
        }
        done => done,
    }
}

async fn in_stopped<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(&Arc<AuditLog>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let tracker = TaskTracker::new();
    let log = Arc::new(AuditLog::open_for_command(&settings.audit, &tracker)?);
    // Closed in any case; otherwise the lock would last as long as this process.
    let done = match work(&log).await {
        Ok(done) => log.settled().await.map(|()| done).map_err(Into::into),
        Err(error) => Err(error),
    };
    log.close();
    tracker.close();
    tracker.wait().await;
    done
}

/// Makes the running proxy carry out `request`, by the order named `name`.
pub(super) fn ask_running<T: DeserializeOwned>(
    settings: &Settings,
    name: &str,
    request: &impl Serialize,
) -> anyhow::Result<T> {
    let json = serde_json::to_string(request)?;
    let request = ApiRequest {
        method: Method::POST,
        target: format!("/api/v1/audit/{name}?request={}", escape(&json)),
    };
    let answer = ask(settings, &request)?;
    let foreign = |error| ApiError::Foreign(settings.admin.listen, error);
    Ok(serde_json::from_slice(&answer).map_err(foreign)?)
}
