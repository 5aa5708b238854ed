use super::*;
use crate::rules::origin::Scheme;

fn options() -> Options {
    Options {
        deny: vec![Deny::Default],
        allow: Vec::new(),
        ports: vec![Ports::Default],
        resolve: Vec::new(),
        dns_ttl: Duration::from_secs(30),
        dns_cache: NonZeroUsize::new(16).unwrap(),
    }
}

fn egress(options: Options) -> Egress {
    Egress::new(options, Duration::from_secs(5))
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

fn sockets(addresses: &[&str]) -> Vec<SocketAddr> {
    addresses.iter().map(|a| a.parse().unwrap()).collect()
}

async fn denial(egress: &Egress, authority: &str) -> Denial {
    match egress.admits(&origin(authority)).await.unwrap_err() {
        NotAdmitted::Denied(denial) => denial,
        NotAdmitted::NoConnection(cause) => panic!("{authority}: {cause}"),
    }
}

#[tokio::test]
async fn a_public_literal_is_dialled_as_it_is() {
    let admitted = egress(options())
        .admits(&origin("93.184.216.34:8080"))
        .await;
    assert_eq!(*admitted.unwrap(), *sockets(&["93.184.216.34:8080"]));
}

// ours: the table itself has its tests in `addresses`.
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

// RFC 6761, section 6.4.
#[tokio::test]
async fn a_name_under_invalid_is_never_asked_for() {
    let egress = Egress::new(options(), Duration::ZERO);
    for name in ["invalid", "a.invalid"] {
        let answer = egress.admits(&origin(name)).await.unwrap_err();
        assert_eq!(answer, NotAdmitted::NoConnection(NoConnection::Dns));
    }
}

#[test]
fn a_mixed_answer_keeps_what_is_allowed() {
    let host: Host = "h.test".parse().unwrap();
    let found = sockets(&["10.0.0.1:80", "93.184.216.34:80", "[::1]:80"]);
    let admitted = egress(options()).admitted(&host, found).unwrap();
    assert_eq!(*admitted, *sockets(&["93.184.216.34:80"]));
}

#[tokio::test]
async fn what_is_allowed_wins_over_what_is_denied() {
    let egress = egress(Options {
        deny: vec![Deny::Default, Deny::Net("93.184.216.0/24".parse().unwrap())],
        allow: vec![
            Allow::Net("10.1.0.0/16".parse().unwrap()),
            Allow::Name("Intranet.test".to_owned()),
        ],
        ..options()
    });
    assert!(egress.admits(&origin("10.1.2.3")).await.is_ok());
    assert!(egress.admits(&origin("10.2.2.3")).await.is_err());
    assert!(egress.admits(&origin("93.184.216.34")).await.is_err());
    assert!(egress.admits(&origin("[64:ff9b::a01:203]")).await.is_ok());
    let host: Host = "intranet.test".parse().unwrap();
    assert!(egress.admitted(&host, sockets(&["10.9.9.9:80"])).is_ok());
}

#[tokio::test]
async fn without_the_default_only_the_named_networks_are_denied() {
    let egress = egress(Options {
        deny: vec![Deny::Net("192.0.2.0/24".parse().unwrap())],
        ports: vec![Ports::Range(9000..=9100)],
        ..options()
    });
    assert!(egress.admits(&origin("127.0.0.1:9000")).await.is_ok());
    assert!(egress.admits(&origin("192.0.2.1:9100")).await.is_err());
    assert_eq!(denial(&egress, "127.0.0.1:9101").await, Denial::Port(9101));
}

// contract, section 2: like curl's --resolve, the more exact entry wins.
#[tokio::test]
async fn an_override_is_exempt_and_the_more_exact_one_wins() {
    let egress = egress(Options {
        resolve: vec![
            resolve("H.test", None, "127.0.0.1:0"),
            resolve("h.test", Some(443), "127.0.0.2:8443"),
        ],
        ..options()
    });
    let to = |authority| {
        let origin = origin(authority);
        let egress = &egress;
        async move { egress.admits(&origin).await.unwrap() }
    };
    assert_eq!(*to("h.test").await, *sockets(&["127.0.0.1:80"]));
    assert_eq!(*to("h.test:22").await, *sockets(&["127.0.0.1:22"]));
    assert_eq!(*to("h.test:443").await, *sockets(&["127.0.0.2:8443"]));
}

#[tokio::test]
async fn our_own_listeners_are_denied_whatever_is_allowed() {
    let egress = egress(Options {
        deny: Vec::new(),
        allow: vec![Allow::Net("127.0.0.0/8".parse().unwrap())],
        resolve: vec![resolve("h.test", None, "127.0.0.1:3128")],
        ..options()
    });
    egress.listeners(sockets(&["127.0.0.1:3128", "0.0.0.0:3129"]));
    for authority in [
        "h.test",
        "127.0.0.1:3128",
        "127.0.0.2:3129",
        "0.0.0.0:3128",
        "[::1]:3129",
    ] {
        let denial = denial(&egress, authority).await;
        assert!(
            matches!(denial, Denial::OwnListener(_)),
            "{authority}: {denial}"
        );
    }
    assert!(egress.admits(&origin("127.0.0.1:3130")).await.is_ok());
    assert!(egress.admits(&origin("93.184.216.34:3129")).await.is_ok());
}

#[test]
fn an_answer_that_leads_here_too_keeps_the_other_addresses() {
    let egress = egress(options());
    egress.listeners(sockets(&["127.0.0.1:3128"]));
    let mixed = sockets(&["127.0.0.1:3128", "93.184.216.34:3128"]);
    let left = egress.without_own(mixed.into()).unwrap();
    assert_eq!(*left, *sockets(&["93.184.216.34:3128"]));
}
