//! Environment of the command: variables that send its clients through the proxy, and
//! make them trust the proxy's certificate authority and no other.
//!
//! All requests are meant to go through the proxy, so no other root is needed. A client
//! that bypasses it cannot verify the sites' certificates, and gets nothing over HTTPS.
//! Verification is never turned off.
//!
//! Does not know how the command is started or which proxy serves it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::files::{Files, Wget, java_path};
use crate::cli::process::reachable;
use crate::config::Settings;
use politesse_proxy::ca::Ca;
use politesse_proxy::connect::HttpsMode;

/// Variables that name the proxy, for clients of every kind.
pub(crate) const PROXY_VARIABLES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
];
/// Variables that override a proxy in the user's own settings of these programs.
const PROGRAM_PROXY_VARIABLES: [&str; 4] = [
    "npm_config_proxy",
    "npm_config_https_proxy",
    "PIP_PROXY",
    "CARGO_HTTP_PROXY",
];
/// Variables that make clients read the ones above: Node from version 24 on, and
/// libwww-perl.
const USE_PROXY_VARIABLES: [&str; 2] = ["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"];
/// Variable that tells the command that `run` started it, with the address of the
/// proxy. A client that leaves robots.txt to the proxy checks it, so that it does not
/// rely on another proxy.
const RUN_VARIABLE: &str = "POLITESSE_RUN";
/// Variables that would make a client bypass the proxy.
const BYPASS_VARIABLES: [&str; 4] = [
    "no_proxy",
    "NO_PROXY",
    "npm_config_noproxy",
    "npm_config_no_proxy",
];
/// Variables that name a file of roots. All name the same file, so it does not matter
/// which of them a client reads.
const AUTHORITY_VARIABLES: [&str; 13] = [
    // OpenSSL, and therefore Ruby, PHP and Python; also Go, Rust and .NET.
    "SSL_CERT_FILE",
    // Programs built by Nix prefer it to the one above.
    "NIX_SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PERL_LWP_SSL_CA_FILE",
    "HTTPS_CA_FILE",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "PIP_CERT",
    "npm_config_cafile",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];
/// Variables that name folders of additional roots.
const ROOT_FOLDER_VARIABLES: [&str; 3] = ["PERL_LWP_SSL_CA_PATH", "HTTPS_CA_DIR", "GIT_SSL_CAPATH"];

/// Variables to set.
type Variables = Vec<(OsString, OsString)>;
/// Reads a variable of the environment that `run` was started in.
type Inherited<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Changes to the environment of the command. Dropping it removes the files that its
/// variables name, so it must be kept until the command has ended.
pub(super) struct Environment {
    /// Variables to set.
    pub(super) set: Variables,
    /// Variables to remove.
    pub(super) remove: Vec<OsString>,
    /// Keeps the files while the command runs. `None` with `https.mode = "refuse"`:
    /// nothing is intercepted, so there is nothing to trust.
    _files: Option<Files>,
}

impl Environment {
    /// Builds the environment for a command whose proxy listens on `proxy`.
    ///
    /// # Errors
    ///
    /// The certificate authority cannot be read, or the files cannot be written.
    pub(super) fn new(settings: &Settings, proxy: SocketAddr) -> anyhow::Result<Self> {
        let files = match settings.connect.mode {
            HttpsMode::Refuse => None,
            HttpsMode::Intercept => Some(Files::create(&Ca::load(&settings.ca)?)?),
        };
        let proxy = reachable(&proxy);
        let inherited: Inherited<'_> = &|name| std::env::var_os(name);
        // Java reads a single variable, so its options are collected.
        let mut java = java_proxy_options(proxy);
        let mut set = proxy_variables(proxy, inherited);
        if let Some(files) = &files {
            java.push(java_trust_options(&files.java_store()));
            set.extend(trust_variables(files, inherited));
            set.extend(wget_variables(files, &url(proxy), inherited)?);
        }
        set.push((RUN_VARIABLE.into(), url(proxy).into()));
        let java = appended(inherited("JAVA_TOOL_OPTIONS"), java);
        set.push(("JAVA_TOOL_OPTIONS".into(), java));
        let remove = BYPASS_VARIABLES.iter().chain(&ROOT_FOLDER_VARIABLES);
        Ok(Self {
            set,
            remove: remove.map(OsString::from).collect(),
            _files: files,
        })
    }
}

fn url(proxy: SocketAddr) -> String {
    format!("http://{proxy}")
}

/// Returns variables that name the proxy, and the ones that make clients use it.
fn proxy_variables(proxy: SocketAddr, inherited: Inherited<'_>) -> Variables {
    let url = url(proxy);
    let named = PROXY_VARIABLES
        .iter()
        .chain(&PROGRAM_PROXY_VARIABLES)
        .map(|name| (name.into(), (&url).into()));
    let switches = USE_PROXY_VARIABLES
        .iter()
        .map(|name| (name.into(), "1".into()));
    named
        .chain(switches)
        .chain(git_variables(&url, inherited))
        .collect()
}

/// Returns variables that set Git's `http.proxy`, which overrides `https_proxy` if the
/// user's settings have it. They are numbered after the user's own, which stay.
fn git_variables(url: &str, inherited: Inherited<'_>) -> Variables {
    let count = inherited("GIT_CONFIG_COUNT").unwrap_or_else(|| "0".into());
    // Git itself refuses to run with any other value.
    let Some(count) = count.to_str().and_then(|count| count.parse::<u32>().ok()) else {
        return Vec::new();
    };
    vec![
        ("GIT_CONFIG_COUNT".into(), (count + 1).to_string().into()),
        (
            format!("GIT_CONFIG_KEY_{count}").into(),
            "http.proxy".into(),
        ),
        (format!("GIT_CONFIG_VALUE_{count}").into(), url.into()),
    ]
}

/// Returns variables that make clients trust only this authority.
fn trust_variables(files: &Files, inherited: Inherited<'_>) -> Variables {
    let authority = files.authority();
    let mut set: Variables = AUTHORITY_VARIABLES
        .iter()
        .map(|name| (name.into(), (&authority).into()))
        .collect();
    set.push(("SSL_CERT_DIR".into(), files.no_roots().into()));
    // Excludes Deno's own roots; "system" means the roots of SSL_CERT_FILE.
    set.push(("DENO_TLS_CA_STORE".into(), "system".into()));
    set.extend(node_options(inherited("NODE_OPTIONS")).map(|value| ("NODE_OPTIONS".into(), value)));
    let php = php_folders(inherited("PHP_INI_SCAN_DIR"), &files.php_folder());
    set.push(("PHP_INI_SCAN_DIR".into(), php));
    set
}

/// Returns options that make Node take its roots from `SSL_CERT_FILE`: with only
/// `NODE_EXTRA_CA_CERTS` it would still trust its built-in ones.
///
/// Returns `None` if the user asks for the built-in ones, because Node does not start
/// with both.
fn node_options(own: Option<OsString>) -> Option<OsString> {
    const OPENSSL: &str = "--use-openssl-ca";
    let text = own.as_deref().unwrap_or_default().to_string_lossy();
    let chosen = |option: &str| text.split_whitespace().any(|word| word == option);
    (!chosen(OPENSSL) && !chosen("--use-bundled-ca")).then(|| appended(own, OPENSSL.into()))
}

/// Returns the folders in which PHP looks for settings: the user's, then `ours`, which
/// overrides them. An empty entry means PHP's built-in folder; an empty list means no
/// folder.
fn php_folders(own: Option<OsString>, ours: &Path) -> OsString {
    let mut folders = own.unwrap_or_else(|| ":".into());
    if !folders.is_empty() && folders != ":" {
        folders.push(":");
    }
    folders.push(ours);
    folders
}

/// Writes settings for Wget and Wget2, which read no variable for an authority, and
/// returns the variables that name the settings.
fn wget_variables(files: &Files, url: &str, inherited: Inherited<'_>) -> anyhow::Result<Variables> {
    let clients = [
        (Wget::One, "WGETRC", own_wgetrc(inherited)),
        (Wget::Two, "WGET2RC", own_wget2rc(inherited)),
    ];
    let mut set = Vec::new();
    for (client, name, own) in clients {
        let path = files.write_settings(client, &own, url)?;
        set.push((name.into(), path.into()));
    }
    Ok(set)
}

/// Returns the paths where Wget looks for a user's settings.
fn own_wgetrc(inherited: Inherited<'_>) -> Vec<PathBuf> {
    let named = inherited("WGETRC").map(PathBuf::from);
    let home = inherited("HOME").map(|home| Path::new(&home).join(".wgetrc"));
    named.or(home).into_iter().collect()
}

/// Returns the paths where Wget2 looks for a user's settings, in its order.
fn own_wget2rc(inherited: Inherited<'_>) -> Vec<PathBuf> {
    if let Some(named) = inherited("WGET2RC") {
        return vec![named.into()];
    }
    let home = inherited("HOME").map(PathBuf::from);
    let config = inherited("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".config")));
    let paths = [
        config.map(|config| config.join("wget/wget2rc")),
        home.map(|home| home.join(".wget2rc")),
    ];
    paths.into_iter().flatten().collect()
}

/// Returns system properties that send a Java program through the proxy for every host:
/// without `nonProxyHosts` it reaches this machine directly.
fn java_proxy_options(proxy: SocketAddr) -> OsString {
    let (host, port) = (proxy.ip(), proxy.port());
    let options = ["http", "https"]
        .map(|scheme| format!("-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port} "));
    format!("{}-Dhttp.nonProxyHosts=", options.concat()).into()
}

/// Returns system properties that make a Java program trust only the authority.
fn java_trust_options(store: &Path) -> OsString {
    let mut options =
        OsString::from(" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStore=");
    options.push(java_path(store));
    options
}

/// Appends `options` to the user's own; later options win.
fn appended(own: Option<OsString>, options: OsString) -> OsString {
    match own {
        Some(mut own) if !own.is_empty() => {
            own.push(" ");
            own.push(options);
            own
        }
        _ => options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/run/ours";

    fn text(value: impl Into<Option<OsString>>) -> Option<String> {
        value.into().map(|value| value.into_string().unwrap())
    }

    fn os(text: Option<&str>) -> Option<OsString> {
        text.map(OsString::from)
    }

    // Ours: PHP's built-in folder stays, unless the user removed it.
    #[test]
    fn php_reads_the_users_settings_and_then_ours() {
        for (own, wanted) in [
            (None, ":/run/ours"),
            (Some(""), "/run/ours"),
            (Some(":"), ":/run/ours"),
            (Some("/etc/mine"), "/etc/mine:/run/ours"),
            (Some(":/etc/mine"), ":/etc/mine:/run/ours"),
        ] {
            let folders = php_folders(os(own), Path::new(OURS));
            assert_eq!(text(folders).as_deref(), Some(wanted), "{own:?}");
        }
    }

    // Ours: Node exits at once if it is asked for both kinds of roots.
    #[test]
    fn node_takes_roots_from_openssl_unless_asked_for_others() {
        for (own, wanted) in [
            (None, Some("--use-openssl-ca")),
            (
                Some("--trace-warnings"),
                Some("--trace-warnings --use-openssl-ca"),
            ),
            (Some("--use-bundled-ca"), None),
            (Some("--use-openssl-ca"), None),
        ] {
            assert_eq!(text(node_options(os(own))).as_deref(), wanted, "{own:?}");
        }
    }

    #[test]
    fn java_options_are_appended_to_the_users() {
        let options = java_proxy_options("127.0.0.1:3128".parse().unwrap());
        assert_eq!(
            text(appended(os(Some("-Xmx1g")), options)).unwrap(),
            "-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 \
             -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts="
        );
        let store = java_trust_options(Path::new("/tmp/my files/ca.p12"));
        assert!(
            text(store)
                .unwrap()
                .ends_with("trustStore=\"/tmp/my files/ca.p12\"")
        );
    }

    // git-config(1): the variables are numbered from 0.
    #[test]
    fn git_settings_of_the_user_are_kept() {
        let two: Inherited<'_> = &|_| os(Some("2"));
        let set = git_variables("http://127.0.0.1:1", two);
        let names: Vec<_> = set.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_2", "GIT_CONFIG_VALUE_2"]
        );
        assert_eq!(set[0].1, "3");
        assert_eq!(git_variables("", &|_| None)[0].1, "1");
        assert!(git_variables("", &|_| os(Some("many"))).is_empty());
    }

    #[test]
    fn wget2_still_reads_the_users_settings() {
        let home: Inherited<'_> = &|name| os((name == "HOME").then_some("/home/a"));
        let paths = ["/home/a/.config/wget/wget2rc", "/home/a/.wget2rc"];
        assert_eq!(own_wget2rc(home), paths.map(PathBuf::from));
        let named: Inherited<'_> = &|name| os((name == "WGET2RC").then_some("/etc/mine"));
        assert_eq!(own_wget2rc(named), [PathBuf::from("/etc/mine")]);
    }
}
