//! Counters of attempts, inside a network namespace, to reach addresses without a route
//! (`/proc/net/snmp` and `/proc/net/snmp6`).
//!
//! Does not know the command.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

/// Counters of `snmp` that grow with such an attempt, by protocol.
///
/// `OutNoRoutes` counts connections and datagrams without a route. `NoPorts` counts
/// datagrams to a loopback port where no process listens: a name server at 127.0.0.53,
/// such as systemd-resolved, has a route but does not exist inside.
const IPV4: [[&str; 2]; 2] = [["Ip:", "OutNoRoutes"], ["Udp:", "NoPorts"]];
/// Names of the same counters in `snmp6`.
const IPV6: [&str; 2] = ["Ip6OutNoRoutes", "Udp6NoPorts"];
/// Maximum size of a file in bytes; the files have about 2 and 5 KiB.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Counters of one namespace, as open files, because those outlive its processes.
#[derive(Debug)]
pub(crate) struct BypassCounters {
    ipv4: File,
    /// Absent if the system has no IPv6.
    ipv6: Option<File>,
    /// Sum at the start of the command.
    before: Option<u64>,
}

impl BypassCounters {
    /// Starts counting in the files `ipv4` and `ipv6`.
    pub(super) fn new(ipv4: OwnedFd, ipv6: Option<OwnedFd>) -> Self {
        let mut counters = Self {
            ipv4: ipv4.into(),
            ipv6: ipv6.map(File::from),
            before: None,
        };
        // Excludes events before the command, such as those of bringing up loopback.
        counters.before = counters.sum().ok();
        counters
    }

    /// Returns the number of attempts since the start; `None` if it cannot be read.
    pub(crate) fn growth(&self) -> Option<u64> {
        self.sum().ok()?.checked_sub(self.before?)
    }

    fn sum(&self) -> io::Result<u64> {
        let ipv6 = match &self.ipv6 {
            Some(file) => sum_of_ipv6(&read(file)?),
            None => 0,
        };
        Ok(sum_of_ipv4(&read(&self.ipv4)?) + ipv6)
    }
}

/// Reads the current contents of the whole file.
fn read(file: &File) -> io::Result<String> {
    // Read at an offset, because the file stays open and is read again when the command
    // has ended.
    let mut bytes = vec![0; FILE_BYTES_MAX];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds up counters that are stored in pairs of lines, `Ip: Forwarding DefaultTTL …`
/// and `Ip: 1 64 …`.
fn sum_of_ipv4(text: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let value = |[protocol, name]: [&str; 2]| {
        let mut own = lines.iter().filter(|line| line.starts_with(protocol));
        let (names, values) = (own.next()?.split(' '), own.next()?.split(' '));
        let (_, value) = names.zip(values).find(|(own, _)| *own == name)?;
        value.parse::<u64>().ok()
    };
    IPV4.into_iter().filter_map(value).sum()
}

/// Adds up counters with one line each, `Ip6OutNoRoutes      3`.
fn sum_of_ipv6(text: &str) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        IPV6.contains(&name)
            .then(|| value.trim().parse::<u64>().ok())?
    };
    text.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proc(5), /proc/net/snmp.
    #[test]
    fn attempts_without_a_route_or_a_port_are_counted() {
        let ipv4 = "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 2 9 3 9\n\
                    Tcp: ActiveOpens\nTcp: 9\nUdp: InDatagrams NoPorts\nUdp: 9 4\n\
                    UdpLite: InDatagrams NoPorts\nUdpLite: 9 9\n";
        assert_eq!(sum_of_ipv4(ipv4), 7);
        let ipv6 =
            "Ip6InReceives   \t9\nIp6OutNoRoutes  \t5\nUdp6NoPorts   \t1\nUdpLite6NoPorts 9\n";
        assert_eq!(sum_of_ipv6(ipv6), 6);
        assert_eq!(sum_of_ipv4("") + sum_of_ipv6("Ip6OutNoRoutes\n"), 0);
    }
}
