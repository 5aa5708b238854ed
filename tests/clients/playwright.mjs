// Opens pages in Debian's Chromium with the options of contrib/npm, and prints for each
// its status and why the proxy refused it, or 000 and the error.
//
// Arguments: the folder of the package, its options as JSON, and the pages.
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const [folder, options, ...pages] = process.argv.slice(2);
const { launchOptions, refusal } = await import(pathToFileURL(`${folder}/index.js`));
const { args, ...rest } = launchOptions(JSON.parse(options));
const browser = await chromium.launch({
  ...rest,
  executablePath: '/usr/bin/chromium',
  // As root Chromium has no sandbox. It asks hosts of its own for much, if one lets it.
  args: [...args, '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const page = await browser.newPage();
page.setDefaultTimeout(60_000);
for (const url of pages) {
  try {
    const response = await page.goto(url);
    console.log(response.status(), refusal(response));
  } catch (error) {
    console.log('000', error.message.match(/ERR_[A-Z_]+/)?.[0] ?? error.message);
  }
}
await browser.close();
