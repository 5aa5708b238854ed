//! Pages that help to point a client at the proxy: a guide, and the files that it links
//! to, which are the CA certificate, the proxy auto-configuration for browsers (PAC) and
//! a style sheet.
//!
//! Every client that may use the proxy can read them, and at the admin listener no token
//! is needed, so they name no site, URL or crawler. They differ between clients only in
//! the address of the proxy, which is the one at which the client reaches it
//! ([`as_reached`]). Does not know where the pages are served: `own_name` serves them at
//! the proxy itself, `admin` at its listener.

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

/// Content security policy of all pages: they may load only their own style sheet.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// Name of a page, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientPage {
    /// Guide to pointing a client at the proxy, in HTML. `own_name` and `admin` serve it
    /// at different paths.
    Guide,
    /// CA certificate, in PEM (`ca.pem`).
    Ca,
    /// Proxy auto-configuration (`proxy.pac`).
    Pac,
    /// Style sheet of the guide (`client.css`).
    Style,
}

impl ClientPage {
    /// Files that the guide links to, each with the last segment of its path. The links
    /// are relative, so the files must be served in the folder of the guide.
    pub const LINKED: [(&'static str, Self); 3] = [
        ("ca.pem", Self::Ca),
        ("proxy.pac", Self::Pac),
        ("client.css", Self::Style),
    ];

    /// Returns the file with this last path segment; `None` if the guide links to no
    /// such file.
    pub fn linked(name: &str) -> Option<Self> {
        let mut linked = Self::LINKED.into_iter();
        let (_, page) = linked.find(|(known, _)| *known == name)?;
        Some(page)
    }

    /// Returns the value of the label `result` of `politesse_own_pages_total`.
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

/// Facts that the pages show to one client. Builds their contents.
#[derive(Debug)]
pub struct ClientPages {
    /// Addresses at which this client can reach the proxy. The PAC file and the lines for
    /// clients use the first.
    pub proxies: Vec<ListenAddress>,
    /// Certificate authority that clients must trust. `None` with `https.mode =
    /// "refuse"`: the proxy then refuses every CONNECT and signs no certificate, so there
    /// is no `ca.pem`. The lines for clients still name that file, and the caption of
    /// their table says that it is not needed.
    pub ca: Option<Arc<Ca>>,
}

impl ClientPages {
    /// Returns the content of a page. `None` for the CA certificate if there is no
    /// authority, and for the guide and the PAC file if no address of the proxy is known.
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

    /// Builds the proxy auto-configuration for browsers; `None` without an address.
    fn pac(&self) -> Option<String> {
        let ListenAddress { scheme, address } = self.proxies.first()?;
        let kind = match scheme {
            Scheme::Http => "PROXY",
            Scheme::Https => "HTTPS",
        };
        // No DIRECT as a fallback: while the proxy is down, a browser that bypasses it
        // would request even disallowed URLs.
        Some(format!(
            "function FindProxyForURL(url, host) {{\n  return \"{kind} {address}\";\n}}\n"
        ))
    }

    /// Renders the guide; `None` without an address.
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
                    "This proxy obeys robots.txt for the crawlers that use it. To use it, a client "
                    "needs the address of the proxy, and must trust its certificate authority."
                }
                (self.addresses())
                (self.authority())
                h2 { "Lines for clients" }
                (self.client_lines(proxy))
            }
        }))
    }

    /// Renders the section on the addresses of the proxy.
    fn addresses(&self) -> Markup {
        html! {
            h2 { "The proxy" }
            @for proxy in &self.proxies {
                p {
                    code { (proxy) }
                    @if proxy.scheme == Scheme::Https {
                        " uses TLS: the client must also trust the certificate of this listener."
                    }
                }
            }
            p {
                "For browsers: " a href="proxy.pac" { "proxy.pac" } ". A client with a credential puts it before the "
                "address: " code { "http://NAME:TOKEN@…" } "."
            }
        }
    }

    /// Renders the section on HTTPS: the fingerprints of the CA certificate, or that the
    /// proxy refuses HTTPS.
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
                code { (command("ca show")) } " prints on the machine of the proxy. An attacker on the network could have "
                "changed both this page and the file, but not the printed value:"
            }
            // During a rotation there are two roots, and the file contains both.
            @for fingerprint in ca.roots().map(RootCertificate::fingerprint) {
                p { strong { code { (fingerprint) } } }
                p {
                    "The same as " code { "openssl x509 -in ca.pem -noout -fingerprint -sha256" }
                    " and browsers write it: " code { (breakable(&with_colons(&fingerprint))) }
                }
            }
        }
    }

    /// Renders the table with the lines that make each client use `proxy` and trust the
    /// CA.
    pub fn client_lines(&self, proxy: ListenAddress) -> Markup {
        let roots = self.ca.iter().flat_map(|ca| ca.roots());
        let hashes: Vec<_> = roots.filter_map(RootCertificate::spki_hash).collect();
        let spki_list = match hashes.is_empty() {
            // A placeholder, as for the other parts of a line that the reader fills in.
            true => "…".to_owned(),
            false => hashes.join(","),
        };
        let clients = client_rows(proxy, &spki_list);
        let rows = clients.into_iter().chain(machine_rows());
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
                "With " code { "politesse run -- COMMAND" } " on the machine of the proxy no settings are needed."
            }
        }
    }
}

/// Row of the table with the lines for clients.
struct SetupRow {
    /// First cell: the client, or the system whose clients all get the lines.
    client: &'static str,
    /// Second cell: lines for a shell.
    lines: Vec<String>,
}

/// Returns the rows for single clients, with lines of the table in `docs/clients.md`,
/// whose rows `tests/clients/table` runs, and a row for git.
///
/// The first row sets the variables that most clients read the address of the proxy from.
/// A row whose lines do not name `proxy` comes in addition to the first. `spki_list` is the
/// value of Chromium's option: the hashes of the public keys of the CA, separated by
/// commas.
fn client_rows(proxy: ListenAddress, spki_list: &str) -> Vec<SetupRow> {
    let ListenAddress { scheme, address } = proxy;
    // curl needs another option for the certificate of the proxy itself.
    let proxy_ca = match scheme {
        Scheme::Http => "",
        Scheme::Https => " --proxy-cacert proxy.pem",
    };
    let (host, port) = (bracketed(address.ip()), address.port());
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
        // Scrapy reads the two variables and verifies no certificate. The proxy obeys
        // robots.txt for it, so that Scrapy need not fetch and obey the file as well.
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
                "chromium --proxy-server={proxy} --ignore-certificate-errors-spki-list={spki_list} \
                 --user-data-dir=…"
            )],
        ),
    ]
}

/// Returns the rows for whole machines, with the lines that make all clients of a machine
/// trust the CA. They do not make a client use the proxy.
fn machine_rows() -> Vec<SetupRow> {
    vec![
        row(
            "Debian, system-wide",
            &[
                "install -m 644 ca.pem /usr/local/share/ca-certificates/politesse.crt && update-ca-certificates",
            ],
        ),
        row(
            "Fedora, system-wide",
            &[
                "install -m 644 ca.pem /etc/pki/ca-trust/source/anchors/politesse.pem && update-ca-trust",
            ],
        ),
        row(
            "macOS, system-wide",
            &[
                "security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain ca.pem",
            ],
        ),
        row("Windows, system-wide", &["certutil -addstore Root ca.pem"]),
    ]
}

fn row(client: &'static str, lines: &[&str]) -> SetupRow {
    SetupRow {
        client,
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
    }
}

/// Formats an address without its port as a host in a URL: an IPv6 address gets brackets.
fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(_) => address.to_string(),
        IpAddr::V6(_) => format!("[{address}]"),
    }
}

/// Formats a fingerprint in upper case, with a colon between bytes.
pub fn with_colons(fingerprint: &Digest) -> String {
    let digits = fingerprint.to_string().to_uppercase();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && index % 2 == 0 {
            text.push(':');
        }
        // Writing to a `String` cannot fail.
        let _ = text.write_char(digit);
    }
    text
}

/// Returns the address at which a client can reach the listener `listen`.
///
/// That is the address of the listener. If it listens on all addresses (such as
/// `0.0.0.0`), the IP address in `local` replaces that wildcard: `local` is our end of a
/// connection from the client, so the client can reach it. `None` leaves the wildcard.
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

    fn pages(text: &str, scheme: Scheme) -> ClientPages {
        ClientPages {
            proxies: vec![listen(text, scheme)],
            ca: None,
        }
    }

    fn text(pages: &ClientPages, page: ClientPage) -> String {
        let content = pages.content(page).unwrap();
        String::from_utf8(content.body.to_vec()).unwrap()
    }

    // Ours: browsers expect this form; an IPv6 address is in brackets.
    #[test]
    fn the_auto_configuration_names_the_proxy_without_a_bypass() {
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
    fn no_certificate_is_served_without_an_authority() {
        let pages = pages("127.0.0.1:1", Scheme::Http);
        assert!(pages.content(ClientPage::Ca).is_none());
        assert!(text(&pages, ClientPage::Guide).contains("refuses HTTPS"));
    }

    // Ours: a listener on all addresses is reached at the address that the client used.
    #[test]
    fn a_wildcard_address_becomes_the_one_that_the_client_reached() {
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

    // Ours: the CSP forbids inline styles and scripts.
    #[test]
    fn the_guide_has_no_inline_style_or_script() {
        let guide = text(&pages("127.0.0.1:1", Scheme::Http), ClientPage::Guide);
        for forbidden in ["<style", "style=", "<script", "onclick", "http-equiv"] {
            assert!(!guide.contains(forbidden), "{forbidden}");
        }
    }

    // Ours: `tests/clients/table` runs the table in `docs/clients.md`, so the lines must
    // match it.
    #[test]
    fn client_lines_match_the_table_in_the_docs() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");
        let documented = std::fs::read_to_string(path).unwrap();
        let rows = client_rows(listen("127.0.0.1:3128", Scheme::Http), "…");
        assert!(8 < rows.len());
        for row in rows.iter().filter(|row| row.client != "git") {
            for word in row.lines.iter().flat_map(|line| line.split(' ')) {
                let name = word.split('=').next().unwrap_or_default();
                let is_variable = word.contains('=') && !name.starts_with('-');
                let is_option = name.starts_with("--") || name.starts_with("-D");
                // The table sets two variables for curl instead of `--proxy`.
                if (is_variable || is_option) && name != "--proxy" {
                    assert!(documented.contains(name), "{}: {name}", row.client);
                }
            }
        }
    }
}
