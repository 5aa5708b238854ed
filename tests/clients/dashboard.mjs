// Walks the dashboard as a person would: Debian's Chromium, driven by Playwright,
// looked over by axe-core. Ends with 1 and says why at the first step that fails.
//
// Arguments: the address of the admin listener, its token, that of the proxy, and a
// folder for screenshots.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const [admin, token, proxy, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(join(process.cwd(), 'here')).resolve('axe-core/axe.min.js'), 'utf8');

// Pages of one kind that are looked at: rows lead to thousands that differ in text only.
const OF_A_KIND_MAX = 3;
// Links that are followed, so that none leads nowhere.
const LINKS_MAX = 120;
// Standards that the issue of accessibility is measured by.
const STANDARDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  // As root Chromium has no sandbox. It asks hosts of its own for much, if one lets it.
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
});
const context = await browser.newContext({ timezoneId: 'Asia/Tokyo', acceptDownloads: true });
const page = await context.newPage();
page.setDefaultTimeout(20_000);

// What no page may cause. A dialog would be a script of a site's that ran.
const faults = [];
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) faults.push(`${page.url()}: ${message.text()}`);
});
page.on('pageerror', (error) => faults.push(`${page.url()}: ${error}`));
page.on('dialog', (dialog) => {
  faults.push(`${page.url()}: a dialog, ${dialog.message()}`);
  dialog.dismiss();
});
await context.addInitScript(() => {
  document.addEventListener('securitypolicyviolation', (event) => {
    console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
  });
});

async function open(path) {
  const response = await page.goto(new URL(path, admin).href);
  assert.equal(response.status(), 200, `${path}: ${response.status()}`);
}

async function picture(name) {
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

async function assertAccessible(theme) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(
    (values) => globalThis.axe.run(document, { runOnly: { type: 'tag', values } }), STANDARDS);
  const told = violations.map(({ id, help, nodes }) =>
    `${id}: ${help}\n${nodes.map((node) => `    ${node.html}\n    ${node.failureSummary}`).join('\n')}`);
  assert.deepEqual(told, [], `${page.url()} in ${theme} colours:\n${told.join('\n')}`);
}

async function assertNarrow() {
  await page.setViewportSize({ width: 360, height: 740 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert(width <= 360, `${page.url()} is ${width} pixels wide on a phone`);
  await page.setViewportSize({ width: 1280, height: 900 });
}

// Pages that differ in a name or a number only are of one kind.
function kind(url) {
  return url.pathname.split('/').map((part, place) => (place < 2 ? part : '*')).join('/');
}

async function links() {
  const found = await page.locator('a[href]:not([download])').evaluateAll(
    (anchors) => anchors.map((anchor) => anchor.href));
  return found.map((found) => new URL(found)).filter((url) => url.origin === admin);
}

async function assertPage(name) {
  assert.equal(await page.locator('h1').count(), 1, `${page.url()} has one title`);
  assert.equal(await page.locator('[style], style, script:not([src])').count(), 0);
  for (const theme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: theme });
    await assertAccessible(theme);
    await picture(`${name}-${theme}`);
  }
  await assertNarrow();
}

// Every page that a link leads to, from the first one on.
async function walk() {
  const ahead = [new URL('/', admin)];
  const seen = new Map();
  const paths = new Set();
  while (ahead.length > 0 && paths.size < LINKS_MAX) {
    const url = ahead.shift();
    const path = url.pathname + url.search;
    if (paths.has(path)) continue;
    const answer = await context.request.get(url.href);
    assert(answer.ok(), `a link leads to ${url}, which answers ${answer.status()}`);
    paths.add(path);
    if (!(answer.headers()['content-type'] ?? '').startsWith('text/html')) continue;
    const count = seen.get(kind(url)) ?? 0;
    seen.set(kind(url), count + 1);
    if (count >= OF_A_KIND_MAX) continue;
    await open(path);
    await assertPage(`page-${paths.size}-${url.pathname.slice(1).replaceAll(/[^\w]+/g, '-') || 'overview'}`);
    ahead.push(...await links());
  }
  console.log(`${paths.size} links: ${[...seen.keys()].join(' ')}`);
}

function curl(path, agent) {
  return execFileSync('curl', ['-s', '-x', proxy, '-A', agent, `http://shop.test${path}`], { encoding: 'utf8' });
}

async function signIn() {
  await page.goto(admin);
  await assertPage('sign-in');
  await page.fill('#token', 'wrong');
  await page.click('button.primary');
  await page.locator('[role=alert]').waitFor();
  await page.fill('#token', token);
  await page.click('button.primary');
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

// Somebody asks why a page was refused, and is led to the line of robots.txt.
async function explain() {
  await open('/');
  await page.getByRole('link', { name: 'Decisions' }).click();
  await page.getByText('More filters').click();
  await page.getByLabel('crawler').fill('HungryBot');
  await page.getByLabel('verdict').selectOption('disallow');
  await page.getByRole('button', { name: 'Filter' }).click();
  const rows = page.locator('tbody tr');
  assert.equal(await rows.count(), 30);
  await rows.first().getByRole('link').first().click();
  await page.getByRole('heading', { name: /^Decision/ }).waitFor();
  await page.getByRole('link', { name: 'the line that decided' }).click();
  const line = page.locator('tr:target');
  assert.match(await line.innerText(), /Disallow: \/\s+◀ decided/);
  assert.equal(new URL(page.url()).hash, `#${await line.getAttribute('id')}`);
}

// Somebody asks whether a URL may be fetched, by the rules of the site and by others.
async function testUrl() {
  await open('/');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Test a URL' }).click();
  const ask = async (values) => {
    for (const [label, value] of Object.entries(values)) await page.locator(`#${label}`).fill(value);
    await page.getByRole('button', { name: 'Test', exact: true }).click();
  };
  await ask({ agent: 'FooBot', url: 'http://shop.test/basket/x' });
  await page.getByText('Disallow: /basket').first().waitFor();
  await picture('test');
  await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
  await ask({ robots: 'User-agent: *\nDisallow: /basket/\nAllow: /basket/x\n' });
  await page.getByText('Allow: /basket/x').first().waitFor();
}

// Somebody watches, and sees a refusal that curl is given.
async function watch() {
  await open('/decisions?verdict=disallow');
  await page.getByRole('button', { name: 'Watch live' }).click();
  await page.locator('[data-state=live]').waitFor();
  assert.match(curl('/basket/now', 'LateBot/1'), /robots/);
  await page.locator('tr', { hasText: '/basket/now' }).waitFor();
  curl('/lamp', 'LateBot/1');
  curl('/basket/then', 'LateBot/1');
  await page.locator('tr', { hasText: '/basket/then' }).waitFor();
  // The filter holds for what comes, too.
  assert.equal(await page.locator('tr', { hasText: 'LateBot' }).count(), 2);
  await picture('live');
  await page.getByRole('button', { name: 'Pause' }).click();
  curl('/basket/later', 'LateBot/1');
  await page.waitForTimeout(1000);
  assert.equal(await page.locator('tr', { hasText: '/basket/later' }).count(), 0);
}

// Somebody looks at what is in force, and points a client here.
async function configure() {
  await open('/');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Configuration' }).click();
  const overrides = page.locator('#overrides + .scroll tbody tr');
  assert.deepEqual(await overrides.locator('td:first-child').allInnerTexts(), ['over', 'in force']);
  await page.getByText('A line for each client').click();
  await page.getByText('curl --proxy').waitFor();
  await assertPage('configuration-clients');
  const keys = page.locator('table.keys tbody tr');
  const all = await keys.count();
  await page.getByRole('link', { name: 'that somebody has set' }).click();
  assert(await keys.count() < all);
  assert.match(await page.locator('table.keys tr', { hasText: 'ca_cert' }).innerText(), /politesse\.toml, line \d+/);
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'ca.pem' }).click();
  assert.match(readFileSync(await (await download).path(), 'utf8'), /BEGIN CERTIFICATE/);
  const sha256 = await page.locator('#clients + dl dd code').first().innerText();
  await page.getByRole('link', { name: 'The page for clients' }).click();
  await page.getByText(sha256).waitFor();
}

// Somebody asks for a report of the last day, and hands it over.
async function report() {
  await open('/');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Reports' }).click();
  assert.equal(await page.getByLabel('from (UTC)').inputValue(), '24h');
  await assertPage('reports');
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Report', exact: true }).click();
  const file = await download;
  assert.equal(file.suggestedFilename(), 'report.html');
  const text = readFileSync(await file.path(), 'utf8');
  assert.match(text, /Disallow: \/basket/);
  const other = await context.newPage();
  await other.setContent(text);
  await other.screenshot({ path: `${pictures}/report.png`, fullPage: true });
  await other.close();
  await page.getByRole('button', { name: "Page for the site's owner" }).click();
  await page.getByRole('alert').getByText('wants one').waitFor();
  assert.equal(await page.getByLabel('from (UTC)').inputValue(), '24h');
}

async function ground() {
  return page.evaluate(() => getComputedStyle(document.body).backgroundColor);
}

// A theme that was chosen wins over that of the system, and stays.
async function switchTheme() {
  await page.emulateMedia({ colorScheme: 'light' });
  await open('/decisions');
  const light = await ground();
  await page.getByRole('button', { name: 'dark' }).click();
  assert.notEqual(await ground(), light);
  await open('/');
  assert.notEqual(await ground(), light);
  await page.getByRole('button', { name: 'system' }).click();
  assert.equal(await ground(), light);
}

async function byKeyboard() {
  await open('/');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
}

// All but the live view works without JavaScript.
async function withoutScripts() {
  const plain = await browser.newContext({
    javaScriptEnabled: false,
    storageState: await context.storageState(),
  });
  const page = await plain.newPage();
  await page.goto(new URL('/decisions', admin).href);
  await page.getByText('More filters').click();
  await page.getByLabel('crawler').fill('HungryBot');
  await page.getByRole('button', { name: 'Filter' }).click();
  assert.equal(await page.locator('tbody tr').count(), 30);
  await page.getByRole('button', { name: 'dark' }).click();
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark');
  assert.equal(await page.getByRole('button', { name: 'Watch live' }).isVisible(), false);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').waitFor();
  await plain.close();
}

try {
  const steps = { signIn, explain, testUrl, watch, configure, report, switchTheme, byKeyboard, walk, withoutScripts };
  for (const [name, step] of Object.entries(steps)) {
    await step();
    // Chromium reports what is wrong on purpose: a token, and a report without a host.
    const wanted = { signIn: '403', report: '400' }[name];
    const left = faults.splice(0).filter((fault) => !wanted || !fault.includes(wanted));
    assert.deepEqual(left, [], name);
    console.log(`${name}: ok`);
  }
} catch (error) {
  console.error(error);
  await picture('failed');
  process.exitCode = 1;
} finally {
  await browser.close();
}
