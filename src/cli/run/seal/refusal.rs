//! Why there can be no seal here, and what to do: for people.

use std::fs;

use super::{Failure, Step};

/// `ENOSPC`: no more namespaces may be made.
const NO_SPACE: i32 = 28;
/// The bounds on namespaces (namespaces(7)).
const BOUNDS: [&str; 2] = ["user/max_user_namespaces", "user/max_net_namespaces"];

/// What the system says about itself, as far as it bears on namespaces.
#[derive(Debug, Default)]
struct System {
    /// `kernel.apparmor_restrict_unprivileged_userns` of Ubuntu.
    apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone` of Debian.
    clone_is_off: bool,
    /// Bounds that are 0.
    bounds: Vec<&'static str>,
    /// Whether a filter of system calls is on, as in most containers.
    is_filtered: bool,
}

/// The failure, its likely cause, and what can be done, as lines.
pub(super) fn explain(failure: &Failure) -> String {
    explain_on(failure, &System::read())
}

fn explain_on(failure: &Failure, system: &System) -> String {
    let what = match failure.step {
        Step::Unshare => "make a user and a network namespace",
        Step::Map => "map the user into its namespace",
        Step::Loopback => "bring up loopback in the network namespace",
        Step::Listen => "listen in the network namespace",
        Step::Count => "read the counters of the network namespace",
        Step::Execute => "start the command",
    };
    let (cause, remedy) = cause(failure, system);
    format!(
        "--sealed is not possible here, and the command was not started: cannot {what}: {}
  the likely cause: {cause}
  what to do: {remedy}",
        failure.text
    )
}

fn cause(failure: &Failure, system: &System) -> (String, &'static str) {
    if failure.error == Some(NO_SPACE) || !system.bounds.is_empty() {
        let bounds: Vec<_> = system
            .bounds
            .iter()
            .map(|bound| format!("{} is 0", bound.replace('/', ".")))
            .collect();
        let cause = match bounds.is_empty() {
            true => "as many namespaces are in use as may be (user.max_user_namespaces)".to_owned(),
            false => bounds.join(", "),
        };
        return (
            cause,
            "raise it as root, for example `sysctl user.max_user_namespaces=10000 \
             user.max_net_namespaces=10000`",
        );
    }
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

impl System {
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

    fn told(error: i32, system: &System) -> String {
        let failure = Failure {
            step: Step::Unshare,
            error: Some(error),
            text: std::io::Error::from_raw_os_error(error).to_string(),
        };
        explain_on(&failure, system)
    }

    // ours: a refusal that does not say what to do is met with a way round it.
    #[test]
    fn each_cause_is_told_with_its_remedy() {
        let docker = System {
            is_filtered: true,
            ..System::default()
        };
        let ubuntu = System {
            apparmor_restricts: true,
            ..System::default()
        };
        let debian = System {
            clone_is_off: true,
            ..System::default()
        };
        let bounded = System {
            bounds: vec![BOUNDS[0]],
            ..System::default()
        };
        for (error, system, wanted) in [
            (1, &docker, "--security-opt seccomp=unconfined"),
            (1, &ubuntu, "kernel.apparmor_restrict_unprivileged_userns=0"),
            (1, &debian, "kernel.unprivileged_userns_clone=1"),
            (NO_SPACE, &bounded, "user.max_user_namespaces is 0"),
            (
                NO_SPACE,
                &System::default(),
                "as many namespaces are in use",
            ),
            (1, &System::default(), "user_namespaces(7)"),
        ] {
            let told = told(error, system);
            assert!(told.contains(wanted), "{wanted}: {told}");
            assert!(told.contains("not started"), "{told}");
        }
    }
}
