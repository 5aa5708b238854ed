// Debian's Chromium, driven by Playwright.
import { chromium } from 'playwright-core';

const proxy = process.env.WITH_PROXY && process.env.https_proxy;
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  // As root Chromium has no sandbox.
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic'],
  proxy: proxy && { server: proxy },
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
