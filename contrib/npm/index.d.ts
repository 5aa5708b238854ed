/** Where the proxy is. `politesse run` sets the variables that stand in for `proxy` and `ca`. */
export interface Options {
  /** `http://HOST:PORT`, with `USER:TOKEN@` if the crawler has a credential. Default: `https_proxy` or `http_proxy`. */
  proxy?: string;
  /**
   * PEM file with the proxy's CA alone. Default: `NODE_EXTRA_CA_CERTS`. `null` if the
   * proxy does not intercept HTTPS (`https.mode = "refuse"`).
   */
  ca?: string | null;
}

/** Options for `chromium.launch` of Playwright. */
export interface LaunchOptions {
  proxy: { server: string; username?: string; password?: string };
  args: string[];
}

/** Options for `PlaywrightCrawler` of Crawlee. */
export interface CrawlerOptions<P> {
  proxyConfiguration: P;
  launchContext: { launchOptions: { args: string[] } };
  navigationTimeoutSecs: number;
  useSessionPool: false;
  postNavigationHooks: ((context: NavigationContext) => Promise<void>)[];
}

/** The part of a crawling context that the hook of `crawlerOptions` reads. */
export interface NavigationContext {
  request: { noRetry: boolean; retryCount: number; userData: Record<string, unknown> };
  response?: PageResponse;
}

/** The part of Playwright's `Response` that is read. */
export interface PageResponse {
  status(): number;
  headers(): Record<string, string>;
}

/**
 * Returns options for `chromium.launch`: the proxy, and an argument by which Chromium
 * accepts certificates of the proxy's CA. All others are verified as ever.
 *
 * A request may wait for its turn (`pace.max_wait`, 120 s by default), so set
 * `context.setDefaultNavigationTimeout(150_000)` as well.
 *
 * @throws if there is no proxy or no CA, or the CA's file cannot be read
 */
export function launchOptions(options?: Options): LaunchOptions;

/**
 * Returns options for `new PlaywrightCrawler({ ...crawlerOptions(ProxyConfiguration), … })`.
 *
 * A refused page fails at once, with the rule in the message of its error. A 429 of the
 * proxy is tried again after `Retry-After` (at most 60 s); the first 100 do not count as retries.
 * Sessions are off, so a site's own 403 reaches the `requestHandler` as it came.
 *
 * @param ProxyConfiguration the class of Crawlee
 * @param options `name` is the proxy's name if `proxy.name` is set
 * @throws as `launchOptions` does
 */
export function crawlerOptions<P>(
  ProxyConfiguration: new (options: { proxyUrls: string[] }) => P,
  options?: Options & { name?: string },
): CrawlerOptions<P>;

/**
 * Returns why the proxy refused a request, such as `Line 3 of http://shop.test/robots.txt,
 * "Disallow: /basket" in the group of *, disallows this URL.`, or put it off (429).
 * `undefined` for an answer of the site.
 *
 * @param name the proxy's name, if `proxy.name` is set
 */
export function refusal(response: PageResponse, name?: string): string | undefined;
