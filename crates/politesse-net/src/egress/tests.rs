use super::*;
use politesse_robots::origin::Scheme;

fn options() -> Options {
    Options {
        deny: vec![Deny::Default],
        allow: Vec::new(),
        ports: vec![EgressPorts::Default],
        resolve: Vec::new(),
        parent: None,
        dns_ttl: Duration::from_secs(30),
        dns_timeout: Duration::from_secs(5),
        dns_lookups: NonZeroUsize::new(4).unwrap(),
        dns_zone_lookups: NonZeroUsize::new(4).unwrap(),
        dns_cache: NonZeroUsize::new(16).unwrap(),
        own_name: None,
    }
}

fn egress(options: Options) -> Egress {
    let lookups = Egress::lookups(&options, Arc::default());
    Egress::new(options, lookups, Arc::default(), Tasks::default())
}

fn origin(authority: &str) -> Origin {
    Origin::new(Scheme::Http, authority).unwrap()
}

fn resolve(name: &str, port: Option<u16>, to: &str) -> Resolve {
    let to: SocketAddr = to.parse().unwrap();
    Resolve {
        name: name.to_owned(),
        port,
        address: to.ip(),
        to_port: Some(to.port()).filter(|&port| port != 0),
    }
}

fn sockets(addresses: &[&str]) -> Addresses {
    addresses.iter().map(|a| a.parse().unwrap()).collect()
}

async fn dialled(egress: &Egress, authority: &str) -> Addresses {
    let admitted = egress.admits(&origin(authority), None).await.unwrap();
    assert_eq!(admitted.hop, NextHop::Origin);
    admitted.addresses
}

async fn denial(egress: &Egress, authority: &str) -> Denial {
    match egress.admits(&origin(authority), None).await.unwrap_err() {
        DialError::Denied(denial) => denial,
        error @ (DialError::NoConnection(_) | DialError::Busy) => panic!("{authority}: {error}"),
    }
}

#[tokio::test]
async fn a_public_literal_is_dialled_as_it_is() {
    let literal = "93.184.216.34:8080";
    assert_eq!(
        dialled(&egress(options()), literal).await,
        sockets(&[literal])
    );
}

// Ours: mapped addresses are unwrapped before they are judged, so denied networks of them
// must be unwrapped, too.
#[tokio::test]
async fn a_mapped_network_equals_the_ipv4_network_it_represents() {
    let denying = |network: &str| {
        let deny = vec![Deny::Default, Deny::Net(network.parse().unwrap())];
        egress(Options { deny, ..options() })
    };
    let public: IpAddr = "93.184.216.34".parse().unwrap();
    for network in [
        "::ffff:93.184.216.34/128",
        "::ffff:93.184.0.0/112",
        "::ffff:0.0.0.0/96",
    ] {
        let egress = denying(network);
        let found = denial(&egress, "93.184.216.34").await;
        assert_eq!(found, Denial::Address(public), "{network}");
    }
    let other = denying("::ffff:93.185.0.0/112");
    let literal = "93.184.216.34:80";
    assert_eq!(dialled(&other, literal).await, sockets(&[literal]));
}

// Ours: the table itself is tested in `addresses`.
#[tokio::test]
async fn literals_names_and_ports_of_the_table_are_denied() {
    let egress = egress(options());
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    assert_eq!(
        denial(&egress, "127.0.0.1").await,
        Denial::Address(loopback)
    );
    assert_eq!(
        denial(&egress, "[::ffff:127.0.0.1]").await,
        Denial::Address(loopback)
    );
    assert_eq!(
        denial(&egress, "a.localhost").await,
        Denial::Name("a.localhost".into())
    );
    assert_eq!(denial(&egress, "93.184.216.34:22").await, Denial::Port(22));
    assert_eq!(
        denial(&egress, "93.184.216.34:6379").await,
        Denial::Port(6379)
    );
}

// Ours: `proxy.internal_name` is checked before all settings that could lead elsewhere.
#[tokio::test]
async fn our_own_name_is_denied_despite_all_other_settings() {
    let own: Host = "Proxy.Internal".parse().unwrap();
    let egress = egress(Options {
        own_name: Some(own.clone()),
        allow: vec![Allow::Name("proxy.internal".into())],
        resolve: vec![Resolve {
            name: "proxy.internal".into(),
            port: None,
            address: "192.0.2.7".parse().unwrap(),
            to_port: None,
        }],
        ..options()
    });
    for name in ["proxy.internal", "PROXY.internal.", "proxy.internal:8080"] {
        assert_eq!(denial(&egress, name).await, Denial::OwnName(own.clone()));
    }
    assert!(egress.admits(&origin("93.184.216.34"), None).await.is_ok());
}

// RFC 6761, section 6.4.
#[tokio::test]
async fn a_name_under_invalid_is_never_resolved() {
    let egress = egress(Options {
        dns_timeout: Duration::ZERO,
        ..options()
    });
    for name in ["invalid", "a.invalid"] {
        let answer = egress.admits(&origin(name), None).await.unwrap_err();
        assert_eq!(answer, DialError::NoConnection(NoConnection::Dns));
    }
}

fn ips(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|a| a.parse().unwrap()).collect()
}

// Ours: the allowed addresses are used, the others counted.
#[test]
fn a_mixed_answer_keeps_allowed_addresses_and_counts_the_rest() {
    let metrics = Arc::new(Metrics::default());
    let lists = EgressLists {
        deny: vec![Deny::Default],
        allow: Vec::new(),
        ports: vec![EgressPorts::Default],
    };
    let rules = EgressRules::new(lists, Arc::clone(&metrics));
    let found = ips(&["10.0.0.1", "93.184.216.34", "::1", "::ffff:10.0.0.1"]);
    let allowed = rules.allowed_of("h.test", &found).unwrap();
    assert_eq!(allowed, ips(&["93.184.216.34"]));
    assert_eq!(metrics.egress_addresses_denied.get(), 3);
    let denied = rules.allowed_of("h.test", &found[..1]);
    assert_eq!(denied, Err(Denial::Address(found[0])));
}

#[tokio::test]
async fn allow_takes_precedence_over_deny() {
    let egress = egress(Options {
        deny: vec![Deny::Default, Deny::Net("93.184.216.0/24".parse().unwrap())],
        allow: vec![
            Allow::Net("10.1.0.0/16".parse().unwrap()),
            Allow::Name("Intranet.test".to_owned()),
        ],
        ..options()
    });
    assert!(egress.admits(&origin("10.1.2.3"), None).await.is_ok());
    assert!(egress.admits(&origin("10.2.2.3"), None).await.is_err());
    assert!(egress.admits(&origin("93.184.216.34"), None).await.is_err());
    assert!(
        egress
            .admits(&origin("[64:ff9b::a01:203]"), None)
            .await
            .is_ok()
    );
    let found = ips(&["10.9.9.9"]);
    assert!(egress.rules.allowed_of("intranet.test", &found).is_ok());
    assert!(egress.rules.allowed_of("other.test", &found).is_err());
}

macro_rules! wrapped {
    ($($name:ident: deny [$($deny:literal)*] allow [$($allow:literal)*]
        dials [$($yes:literal)*] not [$($no:literal)*];)+) => {$(
        #[tokio::test]
        async fn $name() {
            let egress = egress(Options {
                deny: [$($deny),*].map(|net: &str| match net {
                    "default" => Deny::Default,
                    _ => Deny::Net(net.parse().unwrap()),
                }).to_vec(),
                allow: [$($allow),*].map(|net: &str| Allow::Net(net.parse().unwrap())).to_vec(),
                ..options()
            });
            $(assert!(egress.admits(&origin($yes), None).await.is_ok(), "{}", $yes);)*
            $(assert!(egress.admits(&origin($no), None).await.is_err(), "{}", $no);)*
        }
    )+};
}

// Ours: every form that embeds an IPv4 address is judged by that address.
wrapped! {
    a_denied_network_is_denied_in_every_form:
        deny ["8.8.8.0/24"] allow []
        dials ["10.0.0.1" "[2002:909:909::1]" "[64:ff9b::909:909]"]
        not ["8.8.8.8" "[::8.8.8.8]" "[::ffff:0:808:808]" "[64:ff9b::808:808]"
            "[2002:808:808::1]" "[2001:0:808:808::1]" "[2001:0:909:909:0:0:f7f7:f7f7]"
            "[2606:4700::5efe:808:808]" "[64:ff9b:1:808:8:800::]"];
    an_allowed_network_admits_addresses_that_only_wrap_it:
        deny ["default"] allow ["10.1.0.0/16"]
        dials ["10.1.2.3" "[64:ff9b::a01:203]" "[::10.1.2.3]" "[2606:4700::5efe:a01:203]"]
        not ["10.2.0.1" "[2002:a01:203::1]" "[2001:0:a01:203::1]" "[fe80::5efe:a01:203]"
            "[64:ff9b:1::a01:203]" "[64:ff9b::a02:203]"];
    an_allowed_address_is_dialled_even_if_it_wraps_a_denied_one:
        deny ["default"] allow ["2002:a00:1::1/128" "64:ff9b::/96"]
        dials ["[2002:a00:1::1]" "[64:ff9b::a00:1]"]
        not ["[2002:a00:1::2]" "10.0.0.1"];
}

#[tokio::test]
async fn without_the_default_only_the_named_networks_are_denied() {
    let egress = egress(Options {
        deny: vec![Deny::Net("192.0.2.0/24".parse().unwrap())],
        ports: vec![EgressPorts::Range(9000..=9100)],
        ..options()
    });
    assert!(egress.admits(&origin("127.0.0.1:9000"), None).await.is_ok());
    assert!(
        egress
            .admits(&origin("192.0.2.1:9100"), None)
            .await
            .is_err()
    );
    assert_eq!(denial(&egress, "127.0.0.1:9101").await, Denial::Port(9101));
}

// Ours: a robots.txt that redirects to port 22 of a name must not get there because the
// operator has set the address of that name.
#[tokio::test]
async fn an_entry_with_a_port_opens_that_port() {
    let egress = egress(Options {
        resolve: vec![
            resolve("h.test", None, "127.0.0.1:0"),
            resolve("h.test", Some(22), "127.0.0.2:0"),
        ],
        ..options()
    });
    assert_eq!(
        dialled(&egress, "h.test:22").await,
        sockets(&["127.0.0.2:22"])
    );
    assert_eq!(
        dialled(&egress, "h.test:8080").await,
        sockets(&["127.0.0.1:8080"])
    );
    assert_eq!(denial(&egress, "h.test:6379").await, Denial::Port(6379));
}

// Ours: a request that began under one configuration goes to the addresses found by it,
// and is not sent if the configuration in force denies them.
#[tokio::test]
async fn an_origin_denied_by_a_later_configuration_is_not_dialled() {
    let at = |to: &str| Options {
        resolve: vec![resolve("h.test", None, to)],
        ..options()
    };
    let open = Options {
        allow: vec![Allow::Net("127.0.0.0/8".parse().unwrap())],
        ..at("127.0.0.1:0")
    };
    let named = || Some("h.test".parse().unwrap());
    let rows = [
        // The later configuration does not have this destination, and denies it.
        (options(), "h.test", "127.0.0.1"),
        (options(), "127.0.0.1", "127.0.0.1"),
        (at("127.0.0.2:0"), "h.test", "127.0.0.1"),
    ];
    for (later, authority, denied) in rows {
        let cell = Arc::<LatestEgress>::default();
        let [first, between] = [(); 2].map(|()| Arc::new(egress(open.clone())));
        first.yield_to(&cell);
        between.yield_to(&cell);
        dialled(&first, authority).await;
        cell.store(Some(Arc::clone(&between)));
        dialled(&first, authority).await;
        dialled(&between, authority).await;
        cell.store(Some(Arc::new(egress(later))));
        let denied = Denial::Address(denied.parse().unwrap());
        assert_eq!(denial(&first, authority).await, denied);
        assert_eq!(denial(&between, authority).await, denied);
    }
    let cell = Arc::<LatestEgress>::default();
    let replaced = |later: Options| {
        let first = egress(open.clone());
        first.yield_to(&cell);
        cell.store(Some(Arc::new(egress(later))));
        first
    };
    let web = vec![EgressPorts::Range(443..=443)];
    let port = replaced(Options {
        ports: web.clone(),
        ..open.clone()
    });
    assert_eq!(denial(&port, "h.test").await, Denial::Port(80));
    let own = replaced(Options {
        own_name: named(),
        ..open.clone()
    });
    let name = Denial::OwnName(named().unwrap());
    assert_eq!(denial(&own, "h.test").await, name);
    // The operator has set this address in both configurations.
    let same = replaced(Options {
        resolve: vec![resolve("h.test", Some(80), "127.0.0.1:0")],
        ports: web,
        ..options()
    });
    assert_eq!(dialled(&same, "h.test").await, sockets(&["127.0.0.1:80"]));
}

// Ours: as with curl's --resolve, the more specific entry takes precedence.
#[tokio::test]
async fn an_override_is_exempt_and_the_more_specific_one_wins() {
    let egress = egress(Options {
        resolve: vec![
            resolve("H.test", None, "127.0.0.1:0"),
            resolve("h.test", Some(443), "127.0.0.2:8443"),
        ],
        ..options()
    });
    for (authority, to) in [
        ("h.test", "127.0.0.1:80"),
        ("h.test:8022", "127.0.0.1:8022"),
        ("h.test:443", "127.0.0.2:8443"),
    ] {
        assert_eq!(
            dialled(&egress, authority).await,
            sockets(&[to]),
            "{authority}"
        );
    }
}

#[tokio::test]
async fn our_own_listeners_are_denied_even_if_allowed() {
    let egress = egress(Options {
        deny: Vec::new(),
        allow: vec![Allow::Net("127.0.0.0/8".parse().unwrap())],
        resolve: vec![resolve("h.test", None, "127.0.0.1:3128")],
        ..options()
    });
    egress
        .listeners(listeners(&["127.0.0.1:3128", "0.0.0.0:3129"]))
        .unwrap();
    for authority in [
        "h.test",
        "127.0.0.1:3128",
        "127.0.0.2:3129",
        "0.0.0.0:3128",
        "[::1]:3129",
        "[64:ff9b::7f00:1]:3128",
        "[2002:7f00:1::1]:3128",
    ] {
        let denial = denial(&egress, authority).await;
        assert!(
            matches!(denial, Denial::OwnListener(_)),
            "{authority}: {denial}"
        );
    }
    assert!(egress.admits(&origin("127.0.0.1:3130"), None).await.is_ok());
    assert!(
        egress
            .admits(&origin("93.184.216.34:3129"), None)
            .await
            .is_ok()
    );
}

fn listeners(addresses: &[&str]) -> Vec<SocketAddr> {
    sockets(addresses).to_vec()
}

#[test]
fn a_dns_answer_loses_only_the_addresses_of_our_listeners() {
    let egress = egress(options());
    egress.listeners(listeners(&["127.0.0.1:3128"])).unwrap();
    let left = egress.without_own(sockets(&["127.0.0.1:3128", "93.184.216.34:3128"]));
    assert_eq!(left.unwrap(), sockets(&["93.184.216.34:3128"]));
}

fn behind(parent: &str) -> Options {
    Options {
        parent: Some(parent.parse().unwrap()),
        ..options()
    }
}

// Ours: with a parent, names and literals are judged, and the parent's own address is
// exempt. Names are not resolved, because this machine may be unable to.
#[tokio::test]
async fn with_a_parent_names_and_literals_are_still_judged() {
    let egress = egress(Options {
        resolve: vec![resolve("near.test", None, "127.0.0.1:8080")],
        ..behind("http://10.0.0.5:3128")
    });
    for authority in ["nowhere.test", "93.184.216.34"] {
        let admitted = egress.admits(&origin(authority), None).await.unwrap();
        let addresses: Addresses = vec!["10.0.0.5:3128".parse().unwrap()];
        let hop = NextHop::Parent;
        assert_eq!(admitted, DialTarget { hop, addresses }, "{authority}");
    }
    for authority in [
        "10.0.0.5",
        "10.0.0.5:3128",
        "[::1]",
        "localhost",
        "metadata",
        "a.test:22",
    ] {
        denial(&egress, authority).await;
    }
    assert_eq!(
        dialled(&egress, "near.test").await,
        sockets(&["127.0.0.1:8080"])
    );
}

#[tokio::test]
async fn a_parent_is_dialled_at_its_configured_address() {
    let egress = egress(Options {
        resolve: vec![resolve("up.test", Some(3128), "127.0.0.1:8080")],
        ..behind("http://up.test:3128")
    });
    let admitted = egress.admits(&origin("o.test"), None).await.unwrap();
    assert_eq!(admitted.addresses, sockets(&["127.0.0.1:8080"]));
}

// Ours: such a proxy would send every request to itself.
#[tokio::test]
async fn a_parent_that_is_this_proxy_is_refused_at_start() {
    for parent in [
        "http://127.0.0.1:3128",
        "http://me.test:3128",
        "http://[::1]:3128",
    ] {
        let egress = egress(Options {
            resolve: vec![resolve("me.test", None, "127.0.0.2:0")],
            ..behind(parent)
        });
        let told = egress.listeners(listeners(&["127.0.0.1:3128"]));
        assert!(matches!(told, Err(Denial::OwnListener(_))), "{parent}");
        let answer = egress.admits(&origin("o.test"), None).await;
        assert!(matches!(
            answer,
            Err(DialError::Denied(Denial::OwnListener(_)))
        ));
    }
}

#[tokio::test]
async fn with_a_parent_our_own_listeners_are_denied_too() {
    let egress = egress(Options {
        allow: vec![Allow::Net("127.0.0.0/8".parse().unwrap())],
        resolve: vec![resolve("me.test", None, "127.0.0.1:0")],
        ..behind("http://10.0.0.5:3128")
    });
    egress.listeners(listeners(&["127.0.0.1:3129"])).unwrap();
    for authority in ["127.0.0.1:3129", "me.test:3129"] {
        let denial = denial(&egress, authority).await;
        assert!(matches!(denial, Denial::OwnListener(_)), "{authority}");
    }
}
