// Crawlee knows no proxy but the ones that it is given.
import { CheerioCrawler, Configuration, ProxyConfiguration } from '@crawlee/cheerio';

const proxy = process.env.WITH_PROXY && process.env.https_proxy;
const crawler = new CheerioCrawler(
  {
    proxyConfiguration: proxy && new ProxyConfiguration({ proxyUrls: [proxy] }),
    maxRequestRetries: 0,
    // A 403 is an answer here, not a reason for another session.
    sessionPoolOptions: { blockedStatusCodes: [] },
    ignoreHttpErrorStatusCodes: [403],
    additionalMimeTypes: ['application/problem+json', 'text/plain'],
    requestHandler: ({ request, response }) => console.log(response.statusCode, request.url),
    failedRequestHandler: ({ request }, error) => console.log('000', request.url, error.message),
  },
  new Configuration({ persistStorage: false, logLevel: 0 }),
);
await crawler.run(process.argv.slice(2));
