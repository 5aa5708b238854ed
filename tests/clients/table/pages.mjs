// Asks for URLs as a client of Node does by default, and prints what came of each.
//
// Usage: pages.mjs CLIENT URL…, CLIENT one of crawlee, got, playwright, puppeteer. One
// JSON object a URL: its status, or why there is none. NAVIGATION_TIMEOUT sets the
// timeout of browsers, in milliseconds.
import http from 'node:http';
import { CheerioCrawler, Configuration, ProxyConfiguration } from '@crawlee/cheerio';
import got from 'got';
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';

const proxy = process.env.http_proxy;
const executablePath = '/usr/bin/chromium';
// As root Chromium has no sandbox.
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic'];

const print = (result) => console.log(JSON.stringify(result));

async function oneByOne(urls, status) {
  for (const url of urls) {
    try {
      print({ url, status: await status(url) });
    } catch (error) {
      print({ url, error: error.message.split('\n')[0] });
    }
  }
}

async function inBrowser(browser, urls) {
  const page = await browser.newPage();
  const timeout = process.env.NAVIGATION_TIMEOUT;
  if (timeout) page.setDefaultNavigationTimeout(Number(timeout));
  await oneByOne(urls, async (url) => (await page.goto(url)).status());
  await browser.close();
}

const clients = {
  async crawlee(urls) {
    const crawler = new CheerioCrawler(
      {
        proxyConfiguration: new ProxyConfiguration({ proxyUrls: [proxy] }),
        requestHandler: ({ request, response }) => print({ url: request.url, status: response.statusCode }),
        failedRequestHandler: ({ request }, error) => print({ url: request.url, error: error.message }),
      },
      new Configuration({ persistStorage: false, logLevel: 0 }),
    );
    await crawler.run(urls);
  },
  got(urls) {
    const agent = { http: new http.Agent({ proxyEnv: { http_proxy: proxy } }) };
    return oneByOne(urls, async (url) => (await got(url, { agent })).statusCode);
  },
  async playwright(urls) {
    await inBrowser(await chromium.launch({ executablePath, args, proxy: { server: proxy } }), urls);
  },
  async puppeteer(urls) {
    await inBrowser(await puppeteer.launch({ executablePath, args: [...args, `--proxy-server=${proxy}`] }), urls);
  },
};

const [client, ...urls] = process.argv.slice(2);
await clients[client](urls);
