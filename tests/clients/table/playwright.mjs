// Debian's Chromium, driven by Playwright.
import { chromium } from 'playwright-core';

// It takes a credential apart from the address.
const address = process.env.WITH_PROXY && new URL(process.env.https_proxy);
const proxy = address && {
  server: `${address.protocol}//${address.host}`,
  username: address.username || undefined,
  password: address.password || undefined,
};
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  // As root Chromium has no sandbox.
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic',
    `--ignore-certificate-errors-spki-list=${process.env.SPKI}`],
  proxy: proxy || undefined,
});
const page = await browser.newPage();
for (const url of process.argv.slice(2)) {
  try {
    const response = await page.goto(url);
    console.log(response.status(), url);
  } catch (error) {
    console.log('000', url, error.message.split('\n')[0]);
  }
}
await browser.close();
