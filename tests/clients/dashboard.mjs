// Walks the dashboard as a person would: Debian's Chromium, driven by Playwright,
// looked over by axe-core. Ends with 1 and says why at the first step that fails.
//
// Arguments: a folder for screenshots, one for the pictures of the documentation, and
// three proxies in JSON, each with the addresses of its listeners and its token: one whose
// sites would attack the pages, one without a decision, and one to take pictures of.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const [pictures, documentation, ...proxies] = process.argv.slice(2);
const [attacked, fresh, pictured] = proxies.map((text) => JSON.parse(text));
const { admin, proxy } = attacked;
const axe = readFileSync(createRequire(join(process.cwd(), 'here')).resolve('axe-core/axe.min.js'), 'utf8');

// Pages of one kind that are looked at: rows lead to thousands that differ in text only.
const OF_A_KIND_MAX = 3;
// Links that are followed, so that none leads nowhere.
const LINKS_MAX = 120;
// A phone, a tablet and a desk, in pixels. On the narrowest phone nothing may stick out.
const WIDTHS = { narrow: 360, phone: 390, tablet: 768, desk: 1440 };
// Runs of more letters than this are digests and the like, which may be broken. So may
// what has no blank for longer in code, such as a path.
const LONGEST = { word: 20, code: 30 };
// Standards that the issue of accessibility is measured by.
const STANDARDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  // As root Chromium has no sandbox. It asks hosts of its own for much, if one lets it.
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
});
// What no page may cause. A dialog would be a script of a site's that ran.
const faults = [];

async function newContext(timezoneId = 'Asia/Tokyo') {
  const context = await browser.newContext({ timezoneId, acceptDownloads: true });
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  return context;
}

async function newPage(context) {
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(`${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`${page.url()}: ${error}`));
  page.on('dialog', (dialog) => {
    faults.push(`${page.url()}: a dialog, ${dialog.message()}`);
    dialog.dismiss();
  });
  return page;
}

const context = await newContext();
const page = await newPage(context);

async function open(path) {
  const response = await page.goto(new URL(path, admin).href);
  assert.equal(response.status(), 200, `${path}: ${response.status()}`);
}

async function picture(name, on = page) {
  await on.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

async function setLook(on, width, colorScheme) {
  await on.setViewportSize({ width: WIDTHS[width], height: 900 });
  await on.emulateMedia({ colorScheme });
}

async function assertAccessible(on, theme) {
  await on.evaluate(axe);
  const { violations } = await on.evaluate(
    (values) => globalThis.axe.run(document, { runOnly: { type: 'tag', values } }), STANDARDS);
  const told = violations.map(({ id, help, nodes }) =>
    `${id}: ${help}\n${nodes.map((node) => `    ${node.html}\n    ${node.failureSummary}`).join('\n')}`);
  assert.deepEqual(told, [], `${on.url()} in ${theme} colours:\n${told.join('\n')}`);
}

// Returns what does not fit: a page wider than the screen, small text in a chart, and
// words that go on in the next line.
function misfits(longest) {
  const found = [];
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) found.push(`the page is ${scrollWidth} pixels wide`);
  for (const text of document.querySelectorAll('svg text')) {
    const matrix = text.getScreenCTM();
    if (text.getClientRects().length === 0 || matrix === null) continue;
    const size = parseFloat(getComputedStyle(text).fontSize) * matrix.a;
    if (size < 11.9) found.push(`${text.textContent} in a chart is ${size.toFixed(1)} pixels high`);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const runMax = node.parentElement.closest('code, pre') ? longest.code : Infinity;
    const runs = [...node.data.matchAll(/\S+/gu)].filter(([run]) => run.length <= runMax);
    const words = runs.flatMap((run) => [...run[0].matchAll(/[\p{L}\p{N}]+/gu)].map(
      (word) => ({ word: word[0], index: run.index + word.index })));
    for (const { word, index } of words) {
      if (word.length > longest.word) continue;
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = [...range.getClientRects()].map((box) => Math.round(box.top));
      if (new Set(lines).size > 1) found.push(`"${word}" is broken`);
    }
  }
  return found;
}

async function assertFits(on, width) {
  const found = await on.evaluate(misfits, LONGEST);
  assert.deepEqual(found, [], `${on.url()} at ${WIDTHS[width]} pixels:\n${found.join('\n')}`);
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

// Looks at the open page at every width. Contrast differs by theme and markup by width
// alone, so that two runs of axe-core see all of both.
async function assertPage(name, on = page) {
  assert.equal(await on.locator('h1').count(), 1, `${on.url()} has one title`);
  assert.equal(await on.locator('[style], style, script:not([src])').count(), 0);
  for (const [width, theme] of [['tablet', 'dark'], ['narrow', 'light'], ['desk', 'light'], ['phone', 'dark']]) {
    await setLook(on, width, theme);
    await assertFits(on, width);
    if (width === 'desk' || width === 'phone') await assertAccessible(on, theme);
    if (width !== 'narrow') await picture(`${name}-${width}`, on);
  }
  await setLook(on, 'desk', 'light');
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

async function submitToken(on, token) {
  await on.fill('#token', token);
  await on.click('button.primary');
}

async function signIn() {
  await page.goto(admin);
  await assertPage('sign-in');
  await submitToken(page, 'wrong');
  await page.locator('[role=alert]').waitFor();
  await submitToken(page, attacked.token);
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

// Begins a session with another proxy. Cookies know no port, so it has a context of its own.
async function visit({ admin, token }, timezoneId) {
  const on = await newPage(await newContext(timezoneId));
  await on.goto(admin);
  await submitToken(on, token);
  await on.getByRole('navigation', { name: 'Pages' }).waitFor();
  return on;
}

// Somebody has just started a proxy: each page of the menu has something to say.
async function beginEmpty() {
  const on = await visit(fresh);
  const entries = await on.locator('nav[aria-label=Pages] a').evaluateAll(
    (anchors) => anchors.map((anchor) => anchor.href));
  // There is no fleet, and so no page of one.
  assert.equal(entries.length, 8);
  for (const address of entries) {
    await on.goto(address);
    await assertPage(`empty-${new URL(address).pathname.slice(1) || 'overview'}`, on);
  }
  await on.context().close();
}

// Somebody follows an old link. Chromium reports a page that is not there.
async function leadNowhere() {
  for (const path of ['/nothing', '/decisions/99999', '/hosts?host=never.test']) {
    const answer = await page.goto(new URL(path, admin).href);
    assert.equal(answer.status(), 404);
    await assertPage(`nowhere-${path.replaceAll(/\W+/g, '-')}`);
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Overview' }).click();
  }
}

// Pictures of README and book, of what every reader of them can see.
async function takePictures() {
  const on = await visit(pictured, 'UTC');
  const take = async (name, size) => {
    await on.setViewportSize(size);
    await on.evaluate(() => document.activeElement.blur());
    await on.screenshot({ path: join(documentation, `dashboard-${name}.png`) });
  };
  await on.emulateMedia({ colorScheme: 'light' });
  await take('overview', { width: 1100, height: 900 });
  await take('phone', { width: 390, height: 844 });
  await on.goto(new URL('/decisions?verdict=disallow', pictured.admin).href);
  await on.locator('tbody tr').first().getByRole('link').first().click();
  await on.getByRole('heading', { name: /^Decision/ }).waitFor();
  await take('decision', { width: 1100, height: 900 });
  await on.context().close();
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

// Somebody looks at the overview on a phone while curl is refused a page.
async function watchOverview() {
  await page.setViewportSize({ width: 390, height: 844 });
  await open('/?hours=1');
  await page.locator('[data-overview][data-state=live]').waitFor();
  const figure = page.locator('[data-class=rule]');
  const before = Number(await figure.innerText());
  const begun = Date.now();
  assert.match(curl('/basket/counted', 'LateBot/1'), /robots/);
  await page.locator('[data-class=rule]', { hasText: `${before + 1}` }).waitFor();
  assert(Date.now() - begun < 1500, `${Date.now() - begun} ms`);
  await page.locator('.legend', { hasText: `refused by a rule: ${before + 1}` }).waitFor();
  const total = await page.locator('[data-class=requests]').innerText();
  const counts = page.locator('.figures [data-class]:not([data-class=requests])');
  const sum = (await counts.allInnerTexts()).reduce((all, count) => all + Number(count), 0);
  assert.equal(sum, Number(total));
  // Text is as large as everywhere, and within the page.
  for (const text of await page.locator('.over-time text:visible').all()) {
    const { height, x, width } = await text.boundingBox();
    assert(height >= 12 && x >= 0 && x + width <= 390, `${await text.innerHTML()}: ${height} ${x} ${width}`);
  }
  await picture('overview-live');
  await page.getByRole('button', { name: 'Pause' }).click();
  curl('/basket/uncounted', 'LateBot/1');
  await page.waitForTimeout(1500);
  assert.equal(Number(await figure.innerText()), before + 1);
  await page.getByRole('button', { name: 'Watch live' }).click();
  await page.locator('[data-class=rule]', { hasText: `${before + 2}` }).waitFor();
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.clock.install();
  await open('/?hours=1');
  const view = page.locator('#overview');
  await page.getByText('Show as a table').click();
  await page.evaluate(() => {
    document.querySelector('#overview').dataset.old = '';
    document.activeElement.blur();
  });
  await page.clock.runFor(50_000);
  assert.notEqual(await view.getAttribute('data-old'), null);
  // A minute has ended: the chart goes on, and what is open stays open.
  await page.clock.runFor(15_000);
  await page.locator('#overview:not([data-old])').waitFor();
  assert(await page.getByText('Requests by minute').isVisible());
  await picture('overview-loaded');
  await page.clock.resume();
}

// Somebody opens a row in place, by keyboard: one request each time, and the row that is
// there before the live view as well as one that it added.
async function openRow() {
  await open('/decisions?verdict=disallow');
  await page.getByRole('button', { name: 'Watch live' }).click();
  await page.locator('[data-state=live]').waitFor();
  curl('/basket/opened', 'LateBot/1');
  await page.locator('tr', { hasText: '/basket/opened' }).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  const rows = page.locator('#rows > tr:not(.part)');
  for (const row of [rows.first(), rows.last()]) {
    const button = row.getByRole('button', { name: /^Facts of decision/ });
    const part = page.locator('tr.part');
    await button.focus();
    await page.keyboard.press('Enter');
    await part.getByText('the line that decided').first().waitFor();
    assert.equal(await button.getAttribute('aria-expanded'), 'true');
    assert.match(await part.innerText(), /◀ decided/);
    await page.keyboard.press('Enter');
    await part.waitFor({ state: 'detached' });
    assert.equal(await button.getAttribute('aria-expanded'), 'false');
  }
  assert.equal(asked.filter((url) => url.endsWith('/part')).length, 2, asked.join(' '));
  page.removeAllListeners('request');
  await page.getByRole('button', { name: /^Facts of decision/ }).first().click();
  await page.locator('tr.part').getByText('◀ decided').waitFor();
  // The mark of a new row fades.
  await page.evaluate(() => Promise.all(document.getAnimations().map((each) => each.finished)));
  await assertPage('opened');
}

// Somebody wants times as the clock on the wall has them.
async function chooseZone() {
  await open('/decisions');
  const time = page.locator('#rows time').first();
  assert.match(await time.innerText(), /^\d+ (s|min) ago$/);
  const utc = await time.getAttribute('title');
  await page.getByRole('button', { name: 'local' }).click();
  await open('/decisions');
  const local = await time.getAttribute('title');
  const at = (title) => Date.parse(`${title.slice(0, 10)}T${title.slice(11, 19)}Z`);
  assert.equal(at(local) - at(utc), 9 * 3600 * 1000, `${utc}, ${local}`);
  assert.match(await page.locator('caption').first().innerText(), /times in Asia\/Tokyo/);
  await page.getByRole('button', { name: 'UTC' }).click();
  assert.match(await time.getAttribute('title'), / UTC$/);
}

// Somebody overrides a refusal, and copies the entry.
async function override() {
  await open('/decisions?crawler=HungryBot&verdict=disallow');
  await page.locator('#rows th a').first().click();
  await page.getByText('Override it').click();
  await page.getByLabel('reason').fill('contract 114');
  await page.getByRole('button', { name: 'Write the entry' }).click();
  const entry = await page.locator('#entry').innerText();
  assert.match(entry, /^\[\[robots\.override\]\]\norigin = "http:\/\/shop\.test"\nagent = "HungryBot"\n/);
  await assertPage('override');
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal((await page.evaluate(() => navigator.clipboard.readText())).trim(), entry.trim());
}

// Somebody looks at what is in force, and points a client here.
async function configure() {
  await open('/');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Configuration' }).click();
  const overrides = page.locator('#overrides + .scroll tbody tr');
  assert.deepEqual(await overrides.locator('th + td').allInnerTexts(), ['over', 'in force']);
  await page.getByText('A line for each client').click();
  await page.getByText('curl --proxy').waitFor();
  await assertPage('configuration-clients');
  const keys = page.locator('table.keys tbody tr');
  const all = await keys.count();
  await page.getByRole('link', { name: 'set explicitly' }).click();
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
  for (const width of Object.keys(WIDTHS)) {
    await setLook(other, width, 'light');
    await assertFits(other, width);
    await picture(`report-${width}`, other);
  }
  await assertAccessible(other, 'light');
  await other.close();
  await page.getByRole('button', { name: "Page for the site's owner" }).click();
  await page.getByRole('alert').getByText('needs one').waitFor();
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
  await page.goto(new URL('/', admin).href);
  await page.getByText('no earlier data').first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Pause' }).isVisible(), false);
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
  const steps = {
    signIn, explain, testUrl, watch, openRow, watchOverview, chooseZone, override, configure, report,
    switchTheme, byKeyboard, walk, leadNowhere, beginEmpty, takePictures, withoutScripts,
  };
  for (const [name, step] of Object.entries(steps)) {
    await step();
    // Chromium reports what is wrong on purpose: a token, a report without a host, and a
    // page that is not there.
    const wanted = { signIn: '403', report: '400', leadNowhere: '404' }[name];
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
