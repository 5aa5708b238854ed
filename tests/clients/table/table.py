"""The clients of docs/clients.md, and what is expected of each.

An outcome is one word for http and one for https:

    through  the page came, the disallowed one was refused by the proxy
    round    the site was asked directly, for the disallowed page, too
    closed   the site was dialled directly, and its certificate not accepted
    none     nothing was dialled, or nothing could be (sealed)

With a credential, where the proxy wants one, a pair of statuses such as 407/407
is what the client got for both pages.
"""

from dataclasses import dataclass, field

THROUGH = "through through"
# The client goes round the proxy, and trusts no site.
CLOSED = "round closed"
# The client goes round the proxy, and verifies nothing.
ROUND = "round round"


@dataclass
class Client:
    """One line of the table.

    `hand` are the variables to set without `run`; none where that is in vain,
    and then the client is tried alone as well: it has to be seen to reach the
    site. `always` are what the program itself has to be told, with `run`, too.
    `credential` is the outcome by hand where the proxy wants a credential, which
    is in the address of the proxy, and `tls` that where the way to the proxy is
    TLS as well; nothing where the client is not tried.
    """

    name: str
    command: list
    hand: dict
    run: str = THROUGH
    always: dict = field(default_factory=dict)
    credential: str = THROUGH
    tls: str = THROUGH

    def is_tried(self, way):
        if way in ("credential", "tls"):
            return bool(self.hand and getattr(self, way))
        return bool(self.hand) if way == "hand" else not self.hand if way == "alone" else True

    def wanted(self, way):
        if way == "alone":
            return ROUND
        if way in ("credential", "tls"):
            return getattr(self, way)
        if way != "sealed":
            return self.run
        return self.run.replace("round", "none").replace("closed", "none")


PROXY = {"http_proxy": "{proxy}", "https_proxy": "{proxy}"}
JAVA = (
    "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} "
    "-Djavax.net.ssl.trustStore={work}/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit "
    # Java sends Basic through no tunnel unless it is told to.
    "-Djdk.http.auth.tunneling.disabledSchemes="
)
# Read by the program, which gives them to its client.
USER = {"PROXY_USER": "{user}", "PROXY_TOKEN": "{token}"}


def python(name):
    return ["{root}/target/venv/bin/python", "{here}/" + name]


def node(version, name):
    modules = "{root}/target/node-clients"
    return [modules + f"/node_modules/node{version}/bin/node", f"{modules}/{name}"]


NODE_MODULES = "{root}/target/node-clients/node_modules"
NODE_CA = {"NODE_EXTRA_CA_CERTS": "{ca}"}
# From Node 24 on; it stands for no_proxy and the like, too.
NODE = PROXY | NODE_CA | {"NODE_USE_ENV_PROXY": "1"}
# The program reads https_proxy itself, and gives it to its client.
WITH_PROXY = {"WITH_PROXY": "1"}
SSL = PROXY | {"SSL_CERT_FILE": "{ca}"}

CLIENTS = [
    Client("curl", ["{here}/curl.sh"], PROXY | {"CURL_CA_BUNDLE": "{ca}"}),
    Client("wget", ["{here}/wget.sh"], PROXY | {"CA": "{ca}"}, tls="none none"),
    Client("wget2", ["{here}/wget2.sh"], PROXY | {"CA": "{ca}"} | USER, "through none", credential="through none", tls="none through"),
    Client("requests", python("python-requests.py"), PROXY | {"REQUESTS_CA_BUNDLE": "{ca}"}),
    Client("httpx", python("python-httpx.py"), SSL),
    # It passes over an address with https:// in the environment.
    Client("aiohttp, trust_env", python("python-aiohttp.py"), SSL, always={"TRUST_ENV": "1"}, tls="round round"),
    Client("aiohttp", python("python-aiohttp.py"), {}, CLOSED),
    Client("urllib", python("python-urllib.py"), SSL, tls="none none"),
    Client("urllib3, ProxyManager", python("python-urllib3.py"), SSL | WITH_PROXY, always=WITH_PROXY),
    Client("urllib3", python("python-urllib3.py"), {}, CLOSED),
    Client("Scrapy", python("python-scrapy.py"), PROXY, tls="through none"),
    Client("Node 24 fetch", node(24, "fetch.mjs"), NODE),
    Client("Node 20 fetch", node(20, "fetch.mjs"), {}, CLOSED),
    Client("Node 20, undici's agent", node(20, "node-undici.mjs"), PROXY | NODE_CA),
    Client("axios, Node 24", node(24, "node-axios.mjs"), NODE),
    Client("axios, Node 20", node(20, "node-axios.mjs"), PROXY | NODE_CA, tls="none through"),
    Client("got, Node 24", node(24, "node-got.mjs"), NODE),
    Client("got, Node 20", node(20, "node-got.mjs"), {}, CLOSED),
    Client("Crawlee, proxyUrls", node(24, "node-crawlee.mjs"), PROXY | NODE_CA | WITH_PROXY, always=WITH_PROXY),
    # got-scraping, below Crawlee, verifies nothing.
    Client("Crawlee, Node 20", node(20, "node-crawlee.mjs"), {}, ROUND),
    # With Node 24 it sends the proxy what is meant for the site.
    Client("Crawlee, Node 24", node(24, "node-crawlee.mjs"), {}, "400/400 closed"),
    # It shows no credential over TLS but with CONNECT.
    Client("Deno fetch", [NODE_MODULES + "/.bin/deno", "run", "--quiet", "-A", "{here}/fetch.mjs"], PROXY | {"DENO_CERT": "{ca}"}, tls="407/407 through"),
    Client("Bun fetch", [NODE_MODULES + "/.bin/bun", "run", "{here}/fetch.mjs"], PROXY | NODE_CA),
    # Java speaks no TLS to a proxy.
    Client("Java HttpClient", ["java", "{here}/JavaHttpClient.java"], {"JAVA_TOOL_OPTIONS": JAVA} | USER, tls=""),
    Client("Java URLConnection", ["java", "{here}/JavaUrlConnection.java"], {"JAVA_TOOL_OPTIONS": JAVA} | USER, tls=""),
    Client("Go net/http", ["{work}/go-http"], SSL),
    Client("Perl LWP", ["perl", "{here}/perl-lwp.pl"], PROXY | {"PERL_LWP_ENV_PROXY": "1", "PERL_LWP_SSL_CA_FILE": "{ca}"}, tls="through none"),
    Client("Ruby Net::HTTP", ["ruby", "{here}/ruby-net-http.rb"], SSL, tls="none none"),
    Client("Ruby Mechanize, set_proxy", ["ruby", "{here}/ruby-mechanize.rb"], SSL | WITH_PROXY, always=WITH_PROXY, tls="none none"),
    Client("Ruby Mechanize", ["ruby", "{here}/ruby-mechanize.rb"], {}, CLOSED),
    Client("PHP Guzzle", ["php", "{here}/php-guzzle.php"], PROXY | {"PHP_INI_SCAN_DIR": ":{work}/php"}),
    Client("PHP streams", ["php", "{here}/php-streams.php"], {}, CLOSED),
    # It asks for a credential in a window, and has none without one.
    Client("Chromium", ["{here}/chromium.sh"], PROXY | WITH_PROXY, credential="none none", tls="none none"),
    Client("Playwright", node(24, "playwright.mjs"), PROXY | WITH_PROXY),
    Client("HTTrack, -P", ["{here}/httrack.sh"], PROXY | WITH_PROXY, "through round", always=WITH_PROXY, credential="through round", tls="none round"),
    Client("HTTrack", ["{here}/httrack.sh"], {}, ROUND),
]
