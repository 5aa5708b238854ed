//! Tables of addresses, names and ports that do not belong to public origins.
//!
//! The IANA registries of special-purpose addresses (RFC 6890), and the addresses that
//! cloud providers use outside them. The public anycast services in the registries
//! (AS112, AMT) are not private machines and are omitted. Does not know the settings of
//! `egress`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 ranges, as first address and prefix length.
const V4_SPECIAL: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared address space (RFC 6598): carriers use it for their customers, and one cloud
    // for its metadata service.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Azure's metadata service, the only one outside the special ranges.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Link-local (RFC 3927). Nearly every cloud has its metadata service here.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];

/// IPv6 ranges, as first address and prefix length.
const V6_SPECIAL: [(Ipv6Addr, u32); 14] = [
    (Ipv6Addr::UNSPECIFIED, 128),
    (Ipv6Addr::LOCALHOST, 128),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    // Two /64 prefixes that discard their traffic (RFC 6666, RFC 9780).
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 63),
    // Includes tunnels such as Teredo (RFC 4380), whose end can be chosen by the creator
    // of the address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16),
    // Unique local (RFC 4193). Clouds have IPv6 metadata services here.
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    // Never assigned, and used by overlay networks.
    (Ipv6Addr::new(0x200, 0, 0, 0, 0, 0, 0, 0), 7),
];

/// Names that stand for the machine itself or for its cloud's metadata service.
const NAMES_SPECIAL: [&str; 4] = [
    "localhost",
    "metadata.google.internal",
    "metadata",
    "instance-data",
];

/// Ports above 1023 commonly used by databases and desktops.
const PORTS_SPECIAL: [u16; 11] = [
    2049, 2375, 3306, 3389, 5432, 5900, 6000, 6379, 9200, 11211, 27017,
];

/// Reports whether an address itself is private or special, regardless of any address
/// that it embeds.
pub(super) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => V4_SPECIAL
            .iter()
            .any(|&(first, bits)| bits <= (address.to_bits() ^ first.to_bits()).leading_zeros()),
        IpAddr::V6(address) => V6_SPECIAL
            .iter()
            .any(|&(first, bits)| bits <= (address.to_bits() ^ first.to_bits()).leading_zeros()),
    }
}

/// Returns the IPv4 addresses that an address embeds. A machine on the way may extract
/// them, so they are judged like the address itself.
///
/// Mapped and compatible (RFC 4291, section 2.5.5), translated (RFC 2765, section 2.1),
/// NAT64 (RFC 6052, section 2.2), ISATAP (RFC 5214, section 6.1), 6to4 (RFC 3056, section
/// 2), and both ends of a Teredo tunnel (RFC 4380, section 4).
pub(super) fn ipv4_within(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> + Clone {
    let found = match address {
        IpAddr::V6(address) => wrapped(address),
        IpAddr::V4(_) => [None; 2],
    };
    found.into_iter().flatten()
}

fn wrapped(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let segments = address.segments();
    let at = |high: usize| join(segments[high], segments[high + 1]);
    match segments {
        // Unspecified and loopback are not IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 2],
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _]
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => [Some(at(6)), None],
        // The prefix for local use has 48 or 96 bits, depending on the network.
        [0x64, 0xff9b, 1, high, low, last, ..] => {
            [Some(join(high, low << 8 | last >> 8)), Some(at(6))]
        }
        [0x2001, 0, ..] => [Some(at(2)), Some(join(!segments[6], !segments[7]))],
        [0x2002, ..] => [Some(at(1)), isatap(segments)],
        _ => [isatap(segments), None],
    }
}

/// Extracts the address from an ISATAP address. The globally unique form has an
/// additional bit set in the interface identifier.
fn isatap(segments: [u16; 8]) -> Option<Ipv4Addr> {
    match segments {
        [.., 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        _ => None,
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

/// Reports whether a name stands for this machine or for a cloud's metadata service (RFC
/// 6761, section 6.3).
pub(super) fn is_special_name(name: &str) -> bool {
    NAMES_SPECIAL.contains(&name) || name.ends_with(".localhost")
}

/// Reports whether a port is usual for web origins.
pub(super) fn is_web_port(port: u16) -> bool {
    // Mail, shell and file servers listen below 1024. They could take a request, which a
    // stranger may have written, for commands.
    matches!(port, 80 | 443) || (1024 <= port && !PORTS_SPECIAL.contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! judged {
        ($($name:ident: $address:literal is $special:literal;)*) => {$(
            #[test]
            fn $name() {
                let address: IpAddr = $address.parse().unwrap();
                let within = ipv4_within(address).map(IpAddr::V4).any(is_special);
                assert_eq!(is_special(address) || within, $special);
            }
        )*};
    }

    // RFC 6890 and the IANA registries that it established; ours for 168.63.129.16.
    judged! {
        this_host_is_special: "0.1.2.3" is true;
        unspecified_is_special: "0.0.0.0" is true;
        loopback_is_special: "127.9.9.9" is true;
        private_10_is_special: "10.255.0.1" is true;
        private_172_is_special: "172.31.255.255" is true;
        after_private_172_is_public: "172.32.0.0" is false;
        private_192_is_special: "192.168.1.1" is true;
        link_local_is_special: "169.254.169.254" is true;
        shared_space_is_special: "100.100.100.200" is true;
        after_shared_space_is_public: "100.128.0.0" is false;
        ietf_is_special: "192.0.0.192" is true;
        documentation_1_is_special: "192.0.2.1" is true;
        documentation_2_is_special: "198.51.100.1" is true;
        documentation_3_is_special: "203.0.113.1" is true;
        benchmark_is_special: "198.19.255.255" is true;
        relay_is_special: "192.88.99.1" is true;
        multicast_is_special: "239.255.255.250" is true;
        reserved_is_special: "240.0.0.1" is true;
        broadcast_is_special: "255.255.255.255" is true;
        azure_metadata_is_special: "168.63.129.16" is true;
        beside_azure_metadata_is_public: "168.63.129.17" is false;
        a_public_address_is_public: "93.184.216.34" is false;
        v6_unspecified_is_special: "::" is true;
        v6_loopback_is_special: "::1" is true;
        v6_link_local_is_special: "fe80::1" is true;
        v6_site_local_is_special: "fec0::1" is true;
        v6_unique_local_is_special: "fd00:ec2::254" is true;
        v6_multicast_is_special: "ff02::1" is true;
        v6_discard_is_special: "100::1" is true;
        v6_teredo_is_special: "2001::1" is true;
        v6_orchid_is_special: "2001:20::1" is true;
        v6_documentation_is_special: "2001:db8::1" is true;
        v6_documentation_2_is_special: "3fff::1" is true;
        v6_6to4_is_special: "2002:808:808::1" is true;
        v6_segment_routing_is_special: "5f00::1" is true;
        v6_local_nat64_is_special: "64:ff9b:1::808:808" is true;
        v6_public_is_public: "2606:4700::1111" is false;
        v6_after_ietf_is_public: "2001:4860:4860::8888" is false;
        mapped_loopback_is_special: "::ffff:127.0.0.1" is true;
        mapped_public_is_public: "::ffff:8.8.8.8" is false;
        compatible_private_is_special: "::10.0.0.1" is true;
        nat64_metadata_is_special: "64:ff9b::a9fe:a9fe" is true;
        nat64_public_is_public: "64:ff9b::808:808" is false;
        isatap_private_is_special: "2606:4700::5efe:10.0.0.1" is true;
        isatap_unique_private_is_special: "2606:4700::200:5efe:192.168.0.1" is true;
        isatap_public_is_public: "2606:4700::5efe:8.8.8.8" is false;
        isatap_in_link_local_is_special: "fe80::5efe:8.8.8.8" is true;
        v6_dummy_is_special: "100:0:0:1::1" is true;
        v6_after_dummy_is_public: "100:0:0:2::1" is false;
        v6_overlay_is_special: "201:db8::1" is true;
        compatible_public_is_public: "::8.8.8.8" is false;
        translated_private_is_special: "::ffff:0:10.0.0.1" is true;
        translated_public_is_public: "::ffff:0:8.8.8.8" is false;
        as112_is_public: "192.175.48.1" is false;
    }

    macro_rules! wraps {
        ($($name:ident: $address:literal holds [$($inner:literal)*];)*) => {$(
            #[test]
            fn $name() {
                let inner: [&str; _] = [$($inner),*];
                let found = ipv4_within($address.parse().unwrap()).map(|ip| ip.to_string());
                assert_eq!(found.collect::<Vec<_>>(), inner);
            }
        )*};
    }

    // The RFCs listed at `ipv4_within`, including the example of RFC 6052, section 2.4.
    wraps! {
        v4_wraps_nothing: "10.0.0.1" holds [];
        unspecified_wraps_nothing: "::" holds [];
        loopback_wraps_nothing: "::1" holds [];
        mapped_wraps_its_end: "::ffff:10.0.0.1" holds ["10.0.0.1"];
        compatible_wraps_its_end: "::10.0.0.1" holds ["10.0.0.1"];
        translated_wraps_its_end: "::ffff:0:10.0.0.1" holds ["10.0.0.1"];
        nat64_wraps_its_end: "64:ff9b::192.0.2.33" holds ["192.0.2.33"];
        local_nat64_wraps_both_forms:
            "64:ff9b:1:c000:2:2100:a00:1" holds ["192.0.2.33" "10.0.0.1"];
        isatap_wraps_its_end: "2606:4700::5efe:10.0.0.1" holds ["10.0.0.1"];
        isatap_unique_wraps_its_end: "2606:4700::200:5efe:10.0.0.1" holds ["10.0.0.1"];
        six_to_four_wraps_its_prefix: "2002:a00:1::1" holds ["10.0.0.1"];
        isatap_in_six_to_four_wraps_both: "2002:a00:1::5efe:10.0.0.2" holds ["10.0.0.1" "10.0.0.2"];
        // RFC 4380, section 4: the client's address is transmitted inverted.
        teredo_wraps_server_and_client:
            "2001:0:4136:e378:8000:63bf:3fff:fdd2" holds ["65.54.227.120" "192.0.2.45"];
    }

    // RFC 6761, section 6.3; ours for the rest.
    #[test]
    fn names_of_this_machine_and_of_metadata_services_are_special() {
        for name in [
            "localhost",
            "a.localhost",
            "metadata.google.internal",
            "metadata",
            "instance-data",
        ] {
            assert!(is_special_name(name), "{name}");
        }
        for name in ["localhost.test", "notlocalhost", "metadata.test"] {
            assert!(!is_special_name(name), "{name}");
        }
    }

    #[test]
    fn web_ports_exclude_low_ports_and_databases() {
        for port in [80, 443, 1024, 8080, 8443, 65535] {
            assert!(is_web_port(port), "{port}");
        }
        for port in PORTS_SPECIAL.into_iter().chain([1, 22, 25, 79, 1023]) {
            assert!(!is_web_port(port), "{port}");
        }
    }
}
