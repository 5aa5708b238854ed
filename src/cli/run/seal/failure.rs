//! Failures to seal a command: the step that failed, the likely cause on this system,
//! and a remedy.
//!
//! Does not know how the steps are taken.

use std::{fs, io};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// `ENOSPC`: the limit on namespaces is reached.
const NO_SPACE: i32 = 28;
/// Limits on namespaces (namespaces(7)).
const BOUNDS: [&str; 2] = ["user/max_user_namespaces", "user/max_net_namespaces"];

/// A failed step of sealing, either inside the namespaces or on behalf of the process
/// there. Its text names the likely cause and a remedy.
#[derive(Debug, Serialize, Deserialize, Error)]
#[error("{}", explain(self, &NamespaceSettings::read()))]
pub(super) struct SealFailure {
    /// Name of the step, worded to follow "cannot".
    step: String,
    /// Error number of the system, if there is one.
    error: Option<i32>,
    /// Text of the error.
    text: String,
}

impl SealFailure {
    /// Records the error of a step, whose name must be worded to follow "cannot".
    pub(super) fn new(step: &str, error: &io::Error) -> Self {
        Self {
            step: step.to_owned(),
            error: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    /// Returns the error without the step.
    pub(super) fn io_error(&self) -> io::Error {
        match self.error {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(self.text.clone()),
        }
    }
}

/// System settings that affect namespaces.
#[derive(Debug, Default)]
struct NamespaceSettings {
    /// `kernel.apparmor_restrict_unprivileged_userns` of Ubuntu.
    apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone` of Debian.
    clone_is_off: bool,
    /// Limits that are 0.
    bounds: Vec<&'static str>,
    /// Whether system calls are filtered, as in most containers.
    is_filtered: bool,
}

fn explain(failure: &SealFailure, system: &NamespaceSettings) -> String {
    let (cause, remedy) = cause(failure, system);
    format!(
        "--sealed is not possible here, and the command was not started: cannot {}: {}
  the likely cause: {cause}
  what to do: {remedy}",
        failure.step, failure.text
    )
}

fn cause(failure: &SealFailure, system: &NamespaceSettings) -> (String, &'static str) {
    if failure.error == Some(NO_SPACE) || !system.bounds.is_empty() {
        let bounds: Vec<_> = system
            .bounds
            .iter()
            .map(|bound| format!("{} is 0", bound.replace('/', ".")))
            .collect();
        let cause = match bounds.is_empty() {
            true => {
                "as many namespaces are in use as are allowed (user.max_user_namespaces)".to_owned()
            }
            false => bounds.join(", "),
        };
        return (
            cause,
            "raise it as root, for example `sysctl user.max_user_namespaces=10000 \
             user.max_net_namespaces=10000`",
        );
    }
    // The filter is checked first: in a container, the kernel's settings may allow what
    // the filter forbids.
    let (cause, remedy) = if system.is_filtered {
        (
            "a filter of system calls (seccomp), as Docker, Podman and Kubernetes have it by default",
            "run this container with a seccomp profile that allows unshare (Docker: \
             --security-opt seccomp=unconfined; Kubernetes: seccompProfile Unconfined), or run \
             politesse outside of it",
        )
    } else if system.apparmor_restricts {
        (
            "AppArmor gives user namespaces to no program that it has no profile for \
             (kernel.apparmor_restrict_unprivileged_userns is 1, as on Ubuntu)",
            "as root add a profile for this program that has `userns,`, or \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        )
    } else if system.clone_is_off {
        (
            "kernel.unprivileged_userns_clone is 0",
            "as root: `sysctl kernel.unprivileged_userns_clone=1`",
        )
    } else {
        (
            "the system forbids it to this process: it may be in a chroot, or confined by a \
             security module",
            "see user_namespaces(7); `unshare --user --net true` must work for this user",
        )
    };
    (cause.to_owned(), remedy)
}

impl NamespaceSettings {
    fn read() -> Self {
        let setting = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/{name}"));
            text.ok().map(|text| text.trim().to_owned())
        };
        let is = |name: &str, value: &str| setting(name).as_deref() == Some(value);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let seccomp = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            apparmor_restricts: is("kernel/apparmor_restrict_unprivileged_userns", "1"),
            clone_is_off: is("kernel/unprivileged_userns_clone", "0"),
            bounds: BOUNDS.into_iter().filter(|name| is(name, "0")).collect(),
            is_filtered: seccomp.is_some_and(|mode| mode.trim() == "2"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(error: i32, system: &NamespaceSettings) -> String {
        let failure = SealFailure {
            step: "make a user and a network namespace".to_owned(),
            error: Some(error),
            text: io::Error::from_raw_os_error(error).to_string(),
        };
        explain(&failure, system)
    }

    // Ours: a refusal without a remedy tempts users to go without the seal.
    #[test]
    fn each_cause_is_explained_with_its_remedy() {
        let docker = NamespaceSettings {
            is_filtered: true,
            ..NamespaceSettings::default()
        };
        let ubuntu = NamespaceSettings {
            apparmor_restricts: true,
            ..NamespaceSettings::default()
        };
        let debian = NamespaceSettings {
            clone_is_off: true,
            ..NamespaceSettings::default()
        };
        let bounded = NamespaceSettings {
            bounds: vec![BOUNDS[0]],
            ..NamespaceSettings::default()
        };
        for (error, system, wanted) in [
            (1, &docker, "--security-opt seccomp=unconfined"),
            (1, &ubuntu, "kernel.apparmor_restrict_unprivileged_userns=0"),
            (1, &debian, "kernel.unprivileged_userns_clone=1"),
            (NO_SPACE, &bounded, "user.max_user_namespaces is 0"),
            (
                NO_SPACE,
                &NamespaceSettings::default(),
                "as many namespaces are in use",
            ),
            (1, &NamespaceSettings::default(), "user_namespaces(7)"),
        ] {
            let text = explained(error, system);
            assert!(text.contains(wanted), "{wanted}: {text}");
            assert!(text.contains("not started"), "{text}");
        }
    }
}
