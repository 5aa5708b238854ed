//! Names that many User-Agents have in common: browsers, systems and libraries.
//!
//! They do not tell one crawler from another. Where in a User-Agent a name
//! stands is not known here.

/// Whether a word names no crawler: it has no letter, or browsers send it.
pub(super) fn is_generic(name: &str) -> bool {
    // The version of `rv:109.0` stands behind a colon.
    let name = name.split(':').next().unwrap_or(name);
    !name.contains(char::is_alphabetic) || is_one_of(name, GENERIC)
}

/// Whether a word is the name of a library.
pub(super) fn is_library(name: &str) -> bool {
    is_one_of(name, LIBRARIES)
}

fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|name| name.eq_ignore_ascii_case(word))
}

/// Words in which browsers name themselves, their engines and their systems.
#[rustfmt::skip]
const GENERIC: &[&str] = &[
    "Mozilla", "compatible", "AppleWebKit", "WebKit", "KHTML", "like", "Gecko",
    "Chrome", "Chromium", "CriOS", "Safari", "Version", "Mobile", "Firefox",
    "FxiOS", "Edge", "Edg", "EdgA", "EdgiOS", "OPR", "Opera", "Presto", "Vivaldi",
    "SamsungBrowser", "YaBrowser", "UCBrowser", "MSIE", "Trident", "Windows", "NT",
    "Win64", "WOW64", "x64", "x86_64", "i686", "Linux", "X11", "Ubuntu", "Android",
    "Macintosh", "Mac", "Intel", "PPC", "OS", "X", "CPU", "iPhone", "iPad", "iPod",
    "CrOS", "U", "rv", "Build", "wv", "Tablet", "Touch", "FreeBSD", "OpenBSD",
    "SunOS", "Fedora", "Debian", "Konqueror", "Epiphany", "SeaMonkey", "Iceweasel",
    "PaleMoon", "Waterfox", "Maxthon", "Brave", "Whale", "Silk", "GSA", "Ddg",
    "MiuiBrowser", "HuaweiBrowser", "QQBrowser", "MQQBrowser",
];

/// Libraries that crawlers are written with. As a crawler's own name they are the
/// last choice, but robots.txt files do name them.
#[rustfmt::skip]
const LIBRARIES: &[&str] = &[
    "python-requests", "python-urllib", "python-urllib3", "Python", "CPython", "PyPy",
    "urllib3", "aiohttp", "httpx", "python-httpx", "Scrapy", "curl", "libcurl",
    "PycURL", "GuzzleHttp", "PHP", "Wget", "Wget2", "Go-http-client", "Java",
    "Java-http-client", "Apache-HttpClient", "Jakarta", "Jersey", "okhttp", "Dalvik",
    "libwww-perl", "LWP", "Perl", "Ruby", "Faraday", "Mechanize", "node", "Node.js",
    "node-fetch", "undici", "axios", "got", "superagent", "reqwest", "hyper", "ureq",
    "OpenSSL", "LibreSSL", "GnuTLS", "zlib", "brotli", "nghttp2", "HeadlessChrome",
    "PhantomJS", "Puppeteer", "Playwright", "Selenium", "HTTPie", "PostmanRuntime",
    "Dart", "CFNetwork", "Darwin", "http.rb", "rest-client", "Typhoeus", "Guzzle",
    "RestSharp", "Symfony",
    // What curl is built with, which it names behind itself (`curl --version`).
    "NSS", "BoringSSL", "AWS-LC", "mbedTLS", "wolfSSL", "rustls-ffi", "Schannel",
    "SecureTransport", "WinIDN", "AppleIDN", "c-ares", "libidn", "libidn2", "libpsl",
    "libssh", "libssh2", "librtmp", "libgsasl", "nghttp3", "ngtcp2", "quiche", "zstd",
    "libzstd", "OpenLDAP", "GSS",
];
