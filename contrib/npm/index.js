// Options that lead Playwright and Crawlee through politesse and have Chromium trust
// its certificate authority, and its refusals as errors.
import { X509Certificate, createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

// Above `pace.max_wait`, which is 120 s by default.
const NAVIGATION_TIMEOUT_SECS = 150;
// A page of the browser stays open during the wait, within Crawlee's time for a request.
const WAIT_MAX_SECS = 60;
// Answers with 429 to a request that do not count as retries: they may take hours.
const DEFERRALS_MAX = 100;

export function launchOptions(options) {
  const { proxy, args } = settings(options);
  const server = `${proxy.protocol}//${proxy.host}`;
  if (!proxy.username) return { proxy: { server }, args };
  const [username, password] = [proxy.username, proxy.password].map(decodeURIComponent);
  return { proxy: { server, username, password }, args };
}

export function crawlerOptions(ProxyConfiguration, options) {
  const { proxy, args } = settings(options);
  return {
    proxyConfiguration: new ProxyConfiguration({ proxyUrls: [proxy.href] }),
    launchContext: { launchOptions: { args } },
    navigationTimeoutSecs: NAVIGATION_TIMEOUT_SECS,
    // A session is an identity to change after 403 or 429, with a new browser each time.
    useSessionPool: false,
    postNavigationHooks: [(context) => failIfRefused(context, options?.name)],
  };
}

export function refusal(response, name = 'politesse') {
  // The proxy's member stands first in its own answers, and in no answer of a site:
  // it would be removed.
  const member = response.headers()['proxy-status'] ?? '';
  const start = `${name};error=http_request_denied;details="`;
  if (!member.startsWith(start)) return undefined;
  return member.slice(start.length).match(/^(?:[^"\\]|\\.)*/)[0].replace(/\\(.)/g, '$1');
}

/** Fails a request that the proxy refused; only a 429 is tried again without a count. */
async function failIfRefused({ request, response }, name) {
  const reason = response && refusal(response, name);
  if (reason === undefined) return;
  const status = response.status();
  if (status === 403) request.noRetry = true;
  if (status === 429) {
    const seconds = Number(response.headers()['retry-after']) || WAIT_MAX_SECS;
    await sleep(Math.min(seconds, WAIT_MAX_SECS) * 1000);
    const { userData } = request;
    userData.politesseDeferrals = (userData.politesseDeferrals ?? 0) + 1;
    if (userData.politesseDeferrals <= DEFERRALS_MAX) request.retryCount -= 1;
  }
  throw new Error(`politesse answered ${status}: ${reason}`);
}

/** Reads where the proxy is and which authority it has, and checks both. */
function settings({ proxy = proxyVariable(), ca = process.env.NODE_EXTRA_CA_CERTS } = {}) {
  if (!proxy) {
    throw new Error("no proxy: start this program with `politesse run -- …`, or pass { proxy: 'http://HOST:PORT' }");
  }
  if (!URL.canParse(proxy) || !/^https?:$/.test(new URL(proxy).protocol)) {
    // Without the value, which may hold a credential.
    throw new Error('the address of the proxy is malformed; http://HOST:PORT is wanted');
  }
  // Nothing is intercepted with `https.mode = "refuse"`.
  const args = ca === null ? [] : [`--ignore-certificate-errors-spki-list=${keyHashes(ca)}`];
  return { proxy: new URL(proxy), args };
}

function proxyVariable() {
  const { https_proxy, HTTPS_PROXY, http_proxy, HTTP_PROXY } = process.env;
  return https_proxy || HTTPS_PROXY || http_proxy || HTTP_PROXY;
}

/** Returns the hashes of the authority's public keys, by which Chromium knows it. */
function keyHashes(ca) {
  if (!ca) {
    throw new Error("no CA: start this program with `politesse run -- …`, or pass { ca: 'certs/ca.pem' } (null with https.mode = \"refuse\")");
  }
  let pem;
  try {
    pem = readFileSync(ca, 'utf8');
  } catch (cause) {
    throw new Error(`cannot read the CA's certificate: ${cause.message}`, { cause });
  }
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  // Chromium ignores errors of every key it is given, so a bundle of roots must not pass.
  // Two are there while one root of politesse takes the place of the other.
  if (certificates.length < 1 || certificates.length > 2) {
    throw new Error(`${ca} has ${certificates.length} certificates; a file with that of politesse alone is wanted`);
  }
  const hashes = certificates.map((certificate) => {
    const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' });
    return createHash('sha256').update(key).digest('base64');
  });
  return hashes.join(',');
}
