//! Pages for whoever points a client at the proxy: a guide, the certificate of the
//! authority, and the configuration that browsers read (PAC).
//!
//! Open to all who may use the proxy, so that they name no host, URL or crawler, and
//! are the same for everybody. Does not know where they are served: `own_name` does
//! at the proxy itself, `admin` at its listener.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use maud::{Markup, html};

use super::ca::{Ca, RootCertificate};
use super::socket::ListenAddress;
use politesse_base::command_line::command;
use politesse_decision::digest::Digest;
use politesse_pages::page::document::{BASE_STYLE, DATA_STYLE, Document};
use politesse_pages::page::words::breakable;
use politesse_robots::origin::Scheme;

/// What the pages may load: their style, from where they are.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// Page, by its last path segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientPage {
    /// How to point a client here.
    Guide,
    /// Certificate of the authority, in PEM (`ca.pem`).
    Ca,
    /// Proxy auto-configuration (`proxy.pac`).
    Pac,
    /// Style of the guide (`client.css`).
    Style,
}

impl ClientPage {
    /// Names that the guide links to, beside it.
    pub const LINKED: [(&'static str, Self); 3] = [
        ("ca.pem", Self::Ca),
        ("proxy.pac", Self::Pac),
        ("client.css", Self::Style),
    ];

    /// Returns the page with this name, as the guide links to it.
    pub fn linked(name: &str) -> Option<Self> {
        let mut linked = Self::LINKED.into_iter();
        let (_, page) = linked.find(|(known, _)| *known == name)?;
        Some(page)
    }

    /// Returns its word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guide => "guide",
            Self::Ca => "ca",
            Self::Pac => "pac",
            Self::Style => "style",
        }
    }
}

/// Content of a page.
pub struct PageContent {
    /// Media type.
    pub media_type: &'static str,
    /// Body.
    pub body: Bytes,
}

/// Facts that the pages state.
#[derive(Debug)]
pub struct GuidePages {
    /// Addresses of the proxy as this client reaches it; the first is the one that
    /// lines for clients have.
    pub proxies: Vec<ListenAddress>,
    /// Authority; `None` if HTTPS is not intercepted (`https.mode`).
    pub ca: Option<Arc<Ca>>,
}

impl GuidePages {
    /// Returns the content of a page; `None` if there is none.
    pub fn content(&self, page: ClientPage) -> Option<PageContent> {
        let (media_type, body) = match page {
            ClientPage::Guide => ("text/html; charset=utf-8", self.guide()?.into_string()),
            ClientPage::Ca => (
                "application/x-pem-file",
                self.ca
                    .as_ref()?
                    .roots()
                    .map(RootCertificate::pem)
                    .collect(),
            ),
            ClientPage::Pac => ("application/x-ns-proxy-autoconfig", self.pac()?),
            ClientPage::Style => ("text/css; charset=utf-8", [BASE_STYLE, DATA_STYLE].concat()),
        };
        Some(PageContent {
            media_type,
            body: body.into(),
        })
    }

    /// Writes the auto-configuration of browsers.
    fn pac(&self) -> Option<String> {
        let ListenAddress { scheme, address } = self.proxies.first()?;
        let kind = match scheme {
            Scheme::Http => "PROXY",
            Scheme::Https => "HTTPS",
        };
        // No DIRECT behind it: a client that goes round a proxy that is down would ask
        // whatever a site disallows.
        Some(format!(
            "function FindProxyForURL(url, host) {{\n  return \"{kind} {address}\";\n}}\n"
        ))
    }

    fn guide(&self) -> Option<Markup> {
        let proxy = *self.proxies.first()?;
        let title = "Point a client at this proxy";
        let document = Document {
            title,
            theme: None,
            head: html! { link rel="stylesheet" href="client.css"; },
        };
        Some(document.html(&html! {
            main {
                h1 { (title) }
                p {
                    "This proxy obeys robots.txt for the crawlers that use it. A client uses it when it "
                    "knows where the proxy is, and trusts its certificate authority."
                }
                (self.addresses())
                (self.authority())
                h2 { "Lines for clients" }
                (self.client_lines(proxy))
            }
        }))
    }

    fn addresses(&self) -> Markup {
        html! {
            h2 { "The proxy" }
            @for proxy in &self.proxies {
                p {
                    code { (proxy) }
                    @if proxy.scheme == Scheme::Https {
                        " speaks TLS: the client has to trust the certificate that it shows there, too."
                    }
                }
            }
            p {
                "For browsers: " a href="proxy.pac" { "proxy.pac" } ". Whoever has a credential writes it before the "
                "address: " code { "http://NAME:TOKEN@…" } "."
            }
        }
    }

    fn authority(&self) -> Markup {
        let Some(ca) = &self.ca else {
            return html! {
                h2 { "HTTPS" }
                p { "This proxy refuses HTTPS (" code { "https.mode" } "), and has no authority to trust." }
            };
        };
        html! {
            h2 { "Its certificate authority" }
            p {
                "Rules are about URLs, so the proxy reads the inside of HTTPS. Download "
                a href="ca.pem" { "ca.pem" } ", and compare its SHA-256 with what "
                code { (command("ca show")) } " prints on the machine of the proxy. Somebody on the way could have "
                "changed both this page and the file, but not what is printed there:"
            }
            // Two while one takes the place of the other; both are in the file.
            @for fingerprint in ca.roots().map(RootCertificate::fingerprint) {
                p { strong { code { (fingerprint) } } }
                p {
                    "The same as " code { "openssl x509 -in ca.pem -noout -fingerprint -sha256" }
                    " and browsers write it: " code { (breakable(&with_colons(&fingerprint))) }
                }
            }
        }
    }

    /// Lays out the lines by which each client uses `proxy` and trusts the authority.
    pub fn client_lines(&self, proxy: ListenAddress) -> Markup {
        let roots = self.ca.iter().flat_map(|ca| ca.roots());
        let hashes: Vec<_> = roots.filter_map(RootCertificate::spki_hash).collect();
        let spki = match hashes.is_empty() {
            true => "…".to_owned(),
            false => hashes.join(","),
        };
        let of_clients = rows(proxy, &spki);
        let rows = of_clients.into_iter().chain(machine_rows());
        html! {
            table class="lines" {
                caption {
                    "With ca.pem in the current folder"
                    @if self.ca.is_none() { ", for which this proxy has no use" }
                }
                thead { tr { th scope="col" { "Client" } th scope="col" { "Line" } } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row.client) }
                            td { @for line in &row.lines { code { (line) } } }
                        }
                    }
                }
            }
            p {
                "With " code { "politesse run -- COMMAND" } " on the machine of the proxy nothing has to be set."
            }
        }
    }
}

/// Client with the lines that point it at the proxy.
struct ClientRow {
    client: &'static str,
    lines: Vec<String>,
}

/// Returns the lines for each client: those of the table in `docs/clients.md`, which
/// `tests/clients/table` tries, and of git. `spki` is the hash of the authority's key.
fn rows(proxy: ListenAddress, spki: &str) -> Vec<ClientRow> {
    let ListenAddress { scheme, address } = proxy;
    // curl wants a further option for the certificate of the proxy itself.
    let proxy_ca = match scheme {
        Scheme::Http => "",
        Scheme::Https => " --proxy-cacert proxy.pem",
    };
    let (host, port) = (shown(address.ip()), address.port());
    let java = format!(
        "java -Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} \
         -Dhttps.proxyPort={port} -Djavax.net.ssl.trustStore=trust.p12 …"
    );
    let keytool = "keytool -importcert -noprompt -alias politesse -file ca.pem -keystore trust.p12 \
                   -storepass changeit";
    vec![
        row(
            "Most: two variables",
            &[&format!("export http_proxy={proxy} https_proxy={proxy}")],
        ),
        row(
            "curl",
            &[&format!(
                "curl --proxy {proxy}{proxy_ca} --cacert ca.pem https://…"
            )],
        ),
        row("wget", &["wget --ca-certificate=ca.pem https://…"]),
        row(
            "Python requests",
            &["export REQUESTS_CA_BUNDLE=$PWD/ca.pem"],
        ),
        row(
            "Python httpx, urllib, aiohttp; Go; Ruby",
            &["export SSL_CERT_FILE=$PWD/ca.pem"],
        ),
        row("Scrapy", &["scrapy crawl … -s ROBOTSTXT_OBEY=False"]),
        row(
            "Node 24",
            &["export NODE_USE_ENV_PROXY=1 NODE_EXTRA_CA_CERTS=$PWD/ca.pem"],
        ),
        row("Deno", &["export DENO_CERT=$PWD/ca.pem"]),
        row("Java", &[keytool, &java]),
        row(
            "Perl LWP",
            &["export PERL_LWP_ENV_PROXY=1 PERL_LWP_SSL_CA_FILE=$PWD/ca.pem"],
        ),
        row("git", &["export GIT_SSL_CAINFO=$PWD/ca.pem"]),
        row(
            "Chromium; args of Playwright",
            &[&format!(
                "chromium --proxy-server={proxy} --ignore-certificate-errors-spki-list={spki} \
                 --user-data-dir=…"
            )],
        ),
    ]
}

/// Returns the lines by which all clients of a machine trust the authority.
fn machine_rows() -> Vec<ClientRow> {
    vec![
        row(
            "All of a Debian machine",
            &[
                "install -m 644 ca.pem /usr/local/share/ca-certificates/politesse.crt && update-ca-certificates",
            ],
        ),
        row(
            "All of a Fedora machine",
            &[
                "install -m 644 ca.pem /etc/pki/ca-trust/source/anchors/politesse.pem && update-ca-trust",
            ],
        ),
        row(
            "All of a Mac",
            &[
                "security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain ca.pem",
            ],
        ),
        row("All of Windows", &["certutil -addstore Root ca.pem"]),
    ]
}

fn row(client: &'static str, lines: &[&str]) -> ClientRow {
    ClientRow {
        client,
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
    }
}

/// Returns an address as it stands in an option of its own.
fn shown(address: IpAddr) -> String {
    match address {
        IpAddr::V4(_) => address.to_string(),
        IpAddr::V6(_) => format!("[{address}]"),
    }
}

/// Returns a fingerprint in upper case, in pairs.
pub fn with_colons(fingerprint: &Digest) -> String {
    let digits = fingerprint.to_string().to_uppercase();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && place % 2 == 0 {
            text.push(':');
        }
        // Writing to a `String` cannot fail.
        let _ = text.write_char(digit);
    }
    text
}

/// Returns the address at which a client that has reached `local` finds a listener:
/// where that listens on all addresses, the one that the client has used.
pub fn as_reached(listen: ListenAddress, local: Option<SocketAddr>) -> ListenAddress {
    let is_any = listen.address.ip().is_unspecified();
    let ip = local.map(|local| local.ip().to_canonical());
    let address = match ip.filter(|_| is_any) {
        Some(ip) => SocketAddr::new(ip, listen.address.port()),
        None => listen.address,
    };
    ListenAddress { address, ..listen }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str, scheme: Scheme) -> ListenAddress {
        ListenAddress {
            scheme,
            address: text.parse().unwrap(),
        }
    }

    fn pages(text: &str, scheme: Scheme) -> GuidePages {
        GuidePages {
            proxies: vec![listen(text, scheme)],
            ca: None,
        }
    }

    fn text(pages: &GuidePages, page: ClientPage) -> String {
        let content = pages.content(page).unwrap();
        String::from_utf8(content.body.to_vec()).unwrap()
    }

    // Ours: the form that browsers read; an IPv6 address has brackets.
    #[test]
    fn the_auto_configuration_names_the_proxy_and_no_way_round_it() {
        for (address, scheme, expected) in [
            ("192.0.2.7:3128", Scheme::Http, "\"PROXY 192.0.2.7:3128\""),
            ("[::1]:3128", Scheme::Http, "\"PROXY [::1]:3128\""),
            ("192.0.2.7:443", Scheme::Https, "\"HTTPS 192.0.2.7:443\""),
        ] {
            let pac = text(&pages(address, scheme), ClientPage::Pac);
            assert!(pac.contains(expected), "{pac}");
            assert!(!pac.contains("DIRECT"), "{pac}");
        }
    }

    // Ours.
    #[test]
    fn without_an_authority_there_is_no_certificate() {
        let pages = pages("127.0.0.1:1", Scheme::Http);
        assert!(pages.content(ClientPage::Ca).is_none());
        assert!(text(&pages, ClientPage::Guide).contains("refuses HTTPS"));
    }

    // Ours: whoever listens on all addresses is found at the one that was used.
    #[test]
    fn an_address_is_the_one_that_the_client_has_reached() {
        let local = Some("192.0.2.7:3129".parse().unwrap());
        let mapped = Some("[::ffff:192.0.2.7]:3129".parse().unwrap());
        for (address, reached, expected) in [
            ("0.0.0.0:3128", local, "192.0.2.7:3128"),
            ("[::]:3128", mapped, "192.0.2.7:3128"),
            ("127.0.0.1:3128", local, "127.0.0.1:3128"),
            ("0.0.0.0:3128", None, "0.0.0.0:3128"),
        ] {
            let found = as_reached(listen(address, Scheme::Http), reached);
            assert_eq!(found.address.to_string(), expected, "{address}");
        }
    }

    // Ours: the CSP lets nothing else be loaded.
    #[test]
    fn the_guide_has_no_style_and_no_script_of_its_own() {
        let guide = text(&pages("127.0.0.1:1", Scheme::Http), ClientPage::Guide);
        for forbidden in ["<style", "style=", "<script", "onclick", "http-equiv"] {
            assert!(!guide.contains(forbidden), "{forbidden}");
        }
    }

    // Ours: what is tried there is what is said here.
    #[test]
    fn the_lines_say_what_the_table_in_the_book_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");
        let book = std::fs::read_to_string(path).unwrap();
        let rows = rows(listen("127.0.0.1:3128", Scheme::Http), "…");
        assert!(8 < rows.len());
        for row in rows.iter().filter(|row| row.client != "git") {
            for word in row.lines.iter().flat_map(|line| line.split(' ')) {
                let name = word.split('=').next().unwrap_or_default();
                let is_variable = word.contains('=') && !name.starts_with('-');
                let is_option = name.starts_with("--") || name.starts_with("-D");
                // curl's way to name the proxy stands for two variables.
                if (is_variable || is_option) && name != "--proxy" {
                    assert!(book.contains(name), "{}: {name}", row.client);
                }
            }
        }
    }
}
