//! Egress in a network namespace: each test has its own network, in which a listener
//! accepts connections to every address, denied or not, so that a wrong dial is seen.
//! No packet leaves loopback.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::egress::{assert_prohibited, assert_recorded};
use crate::kit::client::{Reply, get, get_from, metrics};
use crate::kit::clock;
use crate::kit::namespace::{Addresses, DeadAddress, Everywhere, NameServer, counter, inside};
use crate::kit::paced::metric;
use crate::kit::proxy::{Config, Proxy};
use crate::kit::soon;

/// Generates tests that run in a network namespace.
macro_rules! namespaced {
    ($($(#[$doc:meta])* $name:ident in $addresses:expr => $test:block)+) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            let name = concat!("egress_namespace::", stringify!($name));
            inside(name, $addresses, async { $test });
        }
    )+};
}

/// Denied addresses of every kind. The tests of `politesse-net` have one for each row of
/// its table.
const DENIED: &[&str] = &[
    "0.0.0.0",
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "10.255.255.254",
    "172.16.0.1",
    "192.168.0.1",
    "192.168.255.254",
    "169.254.169.254",
    "100.100.100.200",
    "100.127.255.254",
    "198.18.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "168.63.129.16",
    "[::]",
    "[::1]",
    "[fe80::1]",
    "[febf::1]",
    "[fc00::1]",
    "[ff02::1]",
    "[200::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001:1ff::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[::ffff:0:10.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[2606:4700::200:5efe:10.0.0.1]",
];

/// Returns the denied addresses that TCP can reach in the namespace: all but
/// broadcast, multicast and link-local addresses.
fn reachable() -> Vec<&'static str> {
    let unreachable = ["224.", "239.", "255.", "[ff", "[fe8", "[febf"];
    let mut rows = DENIED.to_vec();
    rows.retain(|row| !unreachable.iter().any(|start| row.starts_with(start)));
    rows
}

/// Returns the local address that a listener sees for a connection to `row`.
fn local_address(row: &str) -> String {
    let ip: std::net::IpAddr = row.trim_matches(['[', ']']).parse().unwrap();
    match ip.to_canonical().to_string().as_str() {
        // RFC 1122, section 3.2.1.3: "this host".
        "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "::1".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the value of the counter of denied addresses.
async fn denied_count(proxy: &Proxy) -> f64 {
    metric(proxy, "politesse_egress_addresses_denied_total").await
}

/// A public address, which no row of the table denies.
const PUBLIC: &str = "93.184.216.34";

/// Answers one request on each connection.
async fn answer_and_close(listener: TcpListener) {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    while let Ok((mut stream, _)) = listener.accept().await {
        // The request is short, so one read gets all of it.
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

namespaced! {
    /// The only connections opened are those of the crawler to the proxy.
    denied_addresses_are_not_dialled in Addresses::Every => {
        let (web, secure) = (Everywhere::listen(80).await, Everywhere::listen(443).await);
        let proxy = Config::default().start().await;
        let before = counter("Tcp", "ActiveOpens");
        // The certificate for an IPv4-mapped address names the IPv4 address, which the
        // crawler does not accept, so it could send no request inside the tunnel.
        let mapped = |row: &str| row.starts_with("[::ffff:") && !row.starts_with("[::ffff:0:");
        let mut own = 0;
        for row in DENIED {
            assert_prohibited(&get(&proxy, &format!("http://{row}/")).await);
            own += 1;
            if !mapped(row) {
                assert_prohibited(&get(&proxy, &format!("https://{row}:443/")).await);
                own += 1;
            }
        }
        assert_eq!(counter("Tcp", "ActiveOpens") - before, own as u64);
        assert_eq!(counter("Udp", "OutDatagrams"), 0);
        assert_eq!((web.dialled(), secure.dialled()), (vec![], vec![]));
        assert_eq!(denied_count(&proxy).await, own as f64);
        assert_recorded(&proxy, own).await;
    }

    /// The control: the listener sees a connection to each denied address once it is
    /// allowed. Addresses outside every denied network need no `egress.allow`.
    allowed_and_public_addresses_are_dialled in Addresses::Every => {
        let web = Everywhere::listen(80).await;
        let public = [
            PUBLIC, "11.0.0.1", "100.128.0.1", "172.32.0.1", "168.63.129.17", "192.0.1.1",
            "[2606:4700::1111]", "[2001:4860:4860::8888]", "[64:ff9b::8.8.8.8]", "[::8.8.8.8]",
        ];
        let rows = reachable();
        let allow = rows.iter().map(|row| format!("{:?}", row.trim_matches(['[', ']'])));
        let allow: Vec<_> = allow.collect();
        let proxy = Config::default()
            .set(&format!("egress.allow = [{}]", allow.join(", ")))
            .start()
            .await;
        for row in rows.into_iter().chain(public) {
            let reply = get(&proxy, &format!("http://{row}/")).await;
            assert_eq!(reply.status(), 200, "{row}: {}", reply.text());
            let dialled = web.dialled();
            assert!(dialled.contains(&local_address(row)), "{row}: {dialled:?}");
        }
    }

    /// Names that are denied by name are not even resolved.
    special_names_are_not_resolved in Addresses::Every => {
        let web = Everywhere::listen(80).await;
        let names = NameServer::start(|_, _| Some(&[PUBLIC])).await;
        let proxy = Config::default().start().await;
        for name in [
            "localhost", "LOCALHOST.", "a.localhost", "metadata.google.internal", "metadata",
            "instance-data",
        ] {
            assert_prohibited(&get(&proxy, &format!("http://{name}/")).await);
        }
        get(&proxy, "http://a.invalid/").await.assert_error(502, "dns_error");
        assert_eq!((counter("Udp", "OutDatagrams"), web.dialled()), (0, vec![]));
        // The control: other names go to the name server, after the hosts file.
        assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
        assert_eq!(names.asked("o.test"), 1);
        assert_prohibited(&get(&proxy, "http://listed.test/").await);
        assert_eq!((names.asked("listed.test"), web.dialled()), (0, vec![PUBLIC.into()]));
    }

    /// Ours: DNS rebinding does not reach loopback, because the proxy dials the cached
    /// answer that it checked. Without caching, each answer is checked.
    a_rebinding_name_is_dialled_at_its_checked_address in Addresses::Every => {
        let web = Everywhere::listen(80).await;
        let names = NameServer::start(rebinding).await;
        let proxy = Config::default().start().await;
        for path in ["a", "b"] {
            let reply = get(&proxy, &format!("http://rebinding.test/{path}")).await;
            assert_eq!(reply.status(), 200);
        }
        assert_eq!(names.asked("rebinding.test"), 1);
        let uncached = Config::default().set("upstream.dns_ttl = \"1ms\"").start().await;
        // The first request may already meet the second answer. Either way only the
        // public address can be dialled.
        get(&uncached, "http://rebinding-again.test/a").await;
        assert_prohibited(&get(&uncached, "http://rebinding-again.test/b").await);
        assert!(2 <= names.asked("rebinding-again.test"));
        // The control: a name that stays public is dialled.
        assert_eq!(get(&uncached, "http://o.test/a").await.status(), 200);
        assert_eq!(web.dialled(), [PUBLIC]);
    }

    /// Ours: denied addresses of a name are counted, and the allowed ones are used.
    only_the_allowed_addresses_of_a_name_are_dialled in Addresses::Every => {
        let web = Everywhere::listen(80).await;
        let _names = NameServer::start(|name, _| Some(match name {
            "mixed.test" => &["10.0.0.1", PUBLIC, "127.0.0.1", "fd00::1", "64:ff9b::7f00:1"],
            "inner.test" => &["10.0.0.1", "127.0.0.1", "::1", "fd00::1"],
            _ => &[],
        }))
        .await;
        let proxy = Config::default().start().await;
        assert_eq!(get(&proxy, "http://mixed.test/a").await.status(), 200);
        assert_eq!(denied_count(&proxy).await, 4.0);
        assert_prohibited(&get(&proxy, "http://inner.test/a").await);
        assert_prohibited(&get(&proxy, "https://inner.test/a").await);
        assert_eq!(denied_count(&proxy).await, 8.0);
        get(&proxy, "http://empty.test/a").await.assert_error(502, "dns_error");
        assert_eq!(web.dialled(), [PUBLIC]);
        let allowing = Config::default().set("egress.allow = [\"inner.test\"]").start().await;
        assert_eq!(get(&allowing, "http://inner.test/a").await.status(), 200);
        assert_eq!(web.dialled().len(), 2);
    }

    /// If an address refuses the connection, the next one is tried.
    the_first_address_that_accepts_a_connection_is_used
        in Addresses::These(&["93.184.216.34/32"]) =>
    {
        let web = Everywhere::listen(80).await;
        let _names = NameServer::start(|_, _| Some(&["93.184.216.33", PUBLIC, "93.184.216.35"])).await;
        let proxy = Config::default().start().await;
        assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
        assert_eq!(web.dialled(), [PUBLIC]);
    }

    /// Ours: each redirect of a robots.txt is checked against egress addresses and ports.
    a_robots_txt_redirect_to_a_denied_name_or_port_is_not_followed in Addresses::Every => {
        let moved = "HTTP/1.1 302 Found\r\nLocation: http://inner.test/robots.txt\r\n\
                     Content-Length: 0\r\nConnection: close\r\n\r\n";
        let port = "HTTP/1.1 302 Found\r\nLocation: http://o.test:6379/robots.txt\r\n\
                    Content-Length: 0\r\nConnection: close\r\n\r\n";
        let first = Everywhere::answering(80, moved).await;
        let second = Everywhere::answering(8080, port).await;
        let database = Everywhere::listen(6379).await;
        let _names = NameServer::start(|name, _| Some(match name {
            "inner.test" => &["10.0.0.1"],
            _ => &[PUBLIC],
        }))
        .await;
        let proxy = Config::default().start().await;
        for url in ["http://o.test/a", "http://o.test:8080/a"] {
            get(&proxy, url).await.assert_error(403, "http_request_denied");
        }
        assert_eq!((first.dialled(), second.dialled()), (vec![PUBLIC.into()], vec![PUBLIC.into()]));
        assert_eq!(database.dialled(), [""; 0]);
    }

    /// Ours: a wildcard listener is denied at every local address, under any name.
    wildcard_listeners_are_denied_at_every_address
        in Addresses::These(&["93.184.216.34/32", "2606:4700::1111/128"]) =>
    {
        let beside = Everywhere::listen(3130).await;
        let _names = NameServer::start(|name, _| Some(match name {
            "o.test" => &[PUBLIC],
            "six.test" => &["2606:4700::1111"],
            _ => &[],
        }))
        .await;
        let proxy = Config::default()
            .set("proxy.listen = [\"[::]:3128\"]")
            .set("admin.listen = \"0.0.0.0:3129\"")
            .set("egress.allow = [\"0.0.0.0/0\", \"::/0\", \"o.test\"]")
            .set("upstream.resolve.\"near.test\" = \"93.184.216.34\"")
            .start()
            .await;
        for host in [
            PUBLIC, "[2606:4700::1111]", "[::ffff:93.184.216.34]", "[64:ff9b::93.184.216.34]",
            "127.0.0.1", "127.1.2.3", "0.0.0.0", "[::1]", "[::]", "o.test", "near.test",
        ] {
            for port in [3128, 3129] {
                assert_prohibited(&get(&proxy, &format!("http://{host}:{port}/metrics")).await);
            }
        }
        assert_prohibited(&get(&proxy, "http://six.test:3128/").await);
        let reply = get(&proxy, "http://o.test:3130/").await;
        assert_eq!((reply.status(), beside.dialled()), (200, vec![PUBLIC.into()]));
    }

    /// RFC 8305, section 5: the next address is tried after 250 ms. The address that
    /// answered is tried first from then on.
    dead_addresses_do_not_delay_a_connection in Addresses::Every => {
        let live = TcpListener::bind((PUBLIC, 80)).await.unwrap();
        let _dead = [
            DeadAddress::at("8.8.8.1:80").await,
            DeadAddress::at("8.8.8.2:80").await,
            DeadAddress::at("8.8.8.3:80").await,
        ];
        tokio::spawn(answer_and_close(live));
        let _names = NameServer::start(|_, _| {
            Some(&["8.8.8.1", "8.8.8.2", "8.8.8.3", PUBLIC])
        })
        .await;
        let proxy = Config::default().start().await;
        let begun = clock::instant();
        assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
        let first = clock::since(begun);
        assert!(first < Duration::from_secs(3), "{first:?}");
        let opened = counter("Tcp", "ActiveOpens");
        assert_eq!(get(&proxy, "http://o.test/").await.status(), 200);
        // One by the crawler, and one to the address that answered.
        assert_eq!(counter("Tcp", "ActiveOpens"), opened + 2);
    }

    /// RFC 8305, section 3: some networks drop AAAA queries.
    a_name_with_unanswered_ipv6_lookups_is_reached_over_ipv4 in Addresses::Every => {
        let web = Everywhere::listen(80).await;
        let _names = NameServer::start(|_, _| Some(&[PUBLIC])).await;
        let proxy = Config::default().start().await;
        let begun = clock::instant();
        let reply = get(&proxy, "http://old.test/").await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        let took = clock::since(begun);
        assert!(took < Duration::from_secs(3), "{took:?}");
        proxy.stop().await;
        assert_eq!(web.dialled(), [PUBLIC]);
    }

    /// Ours: a dead resolver delays neither literals nor cached names nor another client,
    /// and concurrent requests for a name share one lookup.
    a_hanging_resolver_delays_neither_literals_nor_cached_names in Addresses::Every => {
        let _web = Everywhere::listen(80).await;
        let names = NameServer::start(|name, _| {
            (!name.starts_with("hangs")).then_some(&[PUBLIC])
        })
        .await;
        let proxy = Config::default()
            .set("upstream.dns_timeout = \"2s\"")
            .set("upstream.dns_lookups = 4")
            .start()
            .await;
        assert_eq!(get(&proxy, "http://kept.test/").await.status(), 200);
        let hanging = async {
            let ask = |url| get(&proxy, url);
            <[Reply; 4]>::from(tokio::join!(
                ask("http://hangs-1.test/"),
                ask("http://hangs-1.test/x"),
                ask("http://hangs-2.test/"),
                ask("http://hangs-3.test/"),
            ))
        };
        let others = async {
            while hanging_queries(&names).iter().sum::<usize>() < 2 {
                tokio::task::yield_now().await;
            }
            let kept = get(&proxy, "http://kept.test/a").await;
            let literal = get(&proxy, &format!("http://{PUBLIC}/")).await;
            let text = metrics(&proxy).await;
            assert!(text.contains("politesse_upstream_dns_lookups 2"), "{text}");
            // The client of those that hang may use half of the four lookups.
            let other = get_from(&proxy, 2, "http://other.test/", "ExampleBot").await;
            [kept, literal, other]
        };
        let mut hanging = Box::pin(hanging);
        let served = tokio::select! {
            biased;
            served = others => served,
            _ = &mut hanging => panic!("the others waited for those that hang"),
        };
        assert!(served.iter().all(|reply| reply.status() == 200));
        for reply in soon("end of the waits for names", hanging).await {
            match reply.status() {
                504 => reply.assert_error(504, "dns_timeout"),
                // One of the three names got no lookup: a client may use half of them.
                _ => reply.assert_error(503, "http_request_denied"),
            }
        }
        // Shutdown does not wait for lookups, which may hang.
        proxy.stop().await;
        // Two of the three names were looked up, each once.
        let mut asked = hanging_queries(&names);
        asked.sort_unstable();
        assert_eq!(asked, [0, 1, 1]);
    }
}

/// Returns how often the name server was asked for each hanging name.
fn hanging_queries(names: &NameServer) -> [usize; 3] {
    ["hangs-1.test", "hangs-2.test", "hangs-3.test"].map(|name| names.asked(name))
}

/// Answers names that begin with `rebinding` with a public address first, then with loopback.
fn rebinding(name: &str, place: usize) -> Option<&'static [&'static str]> {
    Some(if name.starts_with("rebinding") && 0 < place {
        &["127.0.0.1"]
    } else {
        &[PUBLIC]
    })
}
