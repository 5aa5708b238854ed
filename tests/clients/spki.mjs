// Opens pages in Debian's Chromium, driven by Playwright, and prints the status of each,
// or 000 and the error. No authority is added to the roots of Chromium.
//
// Arguments: the address of the proxy, the hash of its authority's key, and the pages.
import { chromium } from 'playwright-core';

const [server, spki, ...pages] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  proxy: { server },
  // As root Chromium has no sandbox. It asks hosts of its own for much, if one lets it.
  args: [`--ignore-certificate-errors-spki-list=${spki}`,
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const page = await browser.newPage();
page.setDefaultTimeout(60_000);
for (const url of pages) {
  try {
    const response = await page.goto(url);
    console.log(response.status(), await page.textContent('body'));
  } catch (error) {
    console.log('000', error.message.match(/ERR_[A-Z_]+/)?.[0] ?? error.message);
  }
}
await browser.close();
