// Times in the reader's zone, the live view, rows that open in place, and the live counts
// of the overview. Every page works without this script.
"use strict";

// Maximum number of rows, so that an unattended live view does not fill the browser.
const ROWS_MAX = 200;

function follow(live) {
  const rows = document.querySelector(live.dataset.rows);
  const button = live.querySelector("button");
  const status = live.querySelector("[role=status]");
  let source = null;
  // Last decision shown, so that none is missed before the view starts or while it pauses.
  let last = live.dataset.last;
  let seen = 0;
  let leftOut = 0;

  // A screen reader announces the number of new decisions from time to time, not each one.
  const count = () => {
    if (seen === 0 && leftOut === 0) return;
    let text = seen === 1 ? "1 new decision" : `${seen} new decisions`;
    if (leftOut !== 0) text += `, and ${leftOut} or more that were left out: load the page again for all`;
    if (status.textContent !== text) status.textContent = text;
  };
  const add = (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    showTimes(template.content);
    showScripted(template.content);
    for (const row of template.content.children) row.classList.add("fresh");
    rows.prepend(template.content);
    while (ROWS_MAX < rows.children.length) {
      // An opened row consists of two rows.
      const oldest = rows.lastElementChild;
      if (oldest.matches(".part")) oldest.previousElementSibling.remove();
      oldest.remove();
    }
    last = event.lastEventId;
    seen += 1;
  };
  const stop = () => {
    source.close();
    source = null;
    button.textContent = "Watch live";
    button.setAttribute("aria-pressed", "false");
    live.dataset.state = "paused";
  };
  const start = () => {
    const stream = new URL(live.dataset.live, document.baseURI);
    stream.searchParams.set("after", last);
    source = new EventSource(stream);
    source.addEventListener("decision", add);
    source.addEventListener("missed", (event) => {
      leftOut += Number(event.data);
    });
    source.addEventListener("open", () => { live.dataset.state = "live"; });
    source.addEventListener("error", () => {
      // The session has ended, or there are too many watchers: the browser does not retry.
      if (source !== null && source.readyState === EventSource.CLOSED) {
        stop();
        status.textContent = "The live view has ended. Load the page again.";
      }
    });
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
  };
  button.addEventListener("click", () => (source === null ? start() : stop()));
  window.setInterval(count, 2000);
  live.hidden = false;
}

for (const live of document.querySelectorAll("[data-live]")) follow(live);

// The clock of the browser may be wrong, so ages are computed from the proxy's clock.
const content = document.getElementById("content");
const clockError = Date.parse(content.dataset.now) - Date.now();
const isLocal = content.dataset.zone === "local";
const zone = isLocal ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC";
// The Swedish locale formats times like ISO 8601.
const zoned = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });

// Formats the age of a time like the server; null if it is a day or more.
function distance(at) {
  const seconds = Math.trunc((Date.now() + clockError - at) / 1000);
  const span = Math.abs(seconds);
  if (span >= 86400) return null;
  let text = `${span} s`;
  if (span >= 60) text = `${Math.floor(span / 60)} min`;
  if (span >= 3600) text = `${Math.floor(span / 3600)} h`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const [exact, near] = [zoned.format(at), distance(at)];
    let text = near ?? exact.slice(0, 16);
    if (time.matches(".text")) text = `${exact} ${zone}${near === null ? "" : ` (${near})`}`;
    else time.title = `${exact} ${zone}`;
    // Replacing a text by the same text would clear the reader's selection.
    if (time.textContent !== text) time.textContent = text;
  }
}

// Makes captions name the zone of the times in their table.
function nameZone() {
  for (const caption of document.querySelectorAll("caption")) {
    for (const node of caption.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) node.data = node.data.replace("times in UTC", `times in ${zone}`);
    }
  }
}

showTimes(document);
if (isLocal) nameZone();
window.setInterval(() => showTimes(document), 5000);

// Controls that need a script are hidden in the markup.
function showScripted(root) {
  for (const element of root.querySelectorAll("[data-scripted]")) element.hidden = false;
}

// Opens a row: fetches the facts of its decision, each time, and shows them below the row.
async function openRow(button) {
  const row = button.closest("tr");
  const place = document.createElement("tr");
  place.className = "part";
  const cell = place.insertCell();
  cell.colSpan = row.cells.length;
  cell.textContent = "Loading…";
  row.after(place);
  button.setAttribute("aria-expanded", "true");
  try {
    const answer = await fetch(button.dataset.part);
    // If the session has ended, the request is redirected to the sign-in page.
    if (!answer.ok || answer.redirected) throw new Error(answer.statusText);
    cell.innerHTML = await answer.text();
    showTimes(cell);
  } catch {
    cell.textContent = "This could not be loaded. The time of the row leads to its page.";
  }
}

function closeRow(button) {
  button.closest("tr").nextElementSibling.remove();
  button.setAttribute("aria-expanded", "false");
}

// On the document, because the live view adds rows.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-part]");
  if (button === null) return;
  if (button.getAttribute("aria-expanded") === "true") closeRow(button);
  else openRow(button);
});

// Copies a text. Only pages over HTTPS or from loopback may use the clipboard directly.
async function copyText(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    window.getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", () => copyText(button));
}

showScripted(document);

// Shortest time between two automatic reloads of the overview, in milliseconds. Ten views
// together use less than a hundredth of a processor.
const LOAD_EVERY = 60_000;
const LOAD_SHARE = 1000;

// Formats a duration like the page: in its two largest units.
function lengthText(seconds) {
  const units = [["days", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.max(0, seconds);
  const texts = [];
  for (const [unit, size] of units) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count > 0) texts.push(unit === "days" && count === 1 ? "1 day" : `${count} ${unit}`);
  }
  return texts.slice(0, 2).join(" ") || "0 s";
}

// Describes, like the page, how much more or less a count is than the previous one.
function changeText(count, before) {
  if (before === 0) return "no earlier data";
  if (count === before) return "as many as before";
  const part = Math.abs(count - before);
  const tenths = Math.round((part * 1000) / before);
  let share = `${Math.floor(tenths / 10)}.${tenths % 10} %`;
  if (part === before) share = "100 %";
  else if (tenths === 0) share = "less than 0.1 %";
  else if (tenths === 1000 && part < before) share = "more than 99.9 %";
  return `${share} ${count > before ? "more" : "fewer"} than before`;
}

// Redraws the newest bar from the counts of its parts.
function drawBar(bar, counts, legend) {
  const { top, inner, bottom } = bar.ownerSVGElement.dataset;
  const height = (count) => Math.min(1, count / top) * inner;
  for (const rect of bar.querySelectorAll("rect")) rect.remove();
  const texts = [];
  let below = 0;
  counts.forEach((count, at) => {
    if (count <= 0) return;
    const begin = height(below);
    below += count;
    const length = Math.max(0.5, height(below) - begin);
    const rect = document.createElementNS(bar.namespaceURI, "rect");
    rect.setAttribute("class", legend[at].querySelector("rect").getAttribute("class"));
    rect.setAttribute("x", bar.dataset.x);
    rect.setAttribute("width", bar.dataset.width);
    rect.setAttribute("y", bottom - begin - length);
    rect.setAttribute("height", length);
    bar.append(rect);
    texts.push(`${count.toLocaleString("en")} ${legend[at].dataset.name}`);
  });
  bar.querySelector("title").textContent = `${bar.dataset.time}: ${texts.join(", ")}`;
}

// Adds newer counts to an overview: `more` has a number for each class, in the order of the
// legend, and `words` the words of the classes.
function addCounts(view, words, more) {
  const sum = more.reduce((all, count) => all + count, 0);
  for (const figure of view.querySelectorAll("[data-count]")) {
    const word = figure.dataset.class;
    const extra = word === "requests" ? sum : more[words.indexOf(word)];
    const count = Math.max(0, Number(figure.dataset.count) + extra);
    (figure.querySelector("a") ?? figure).textContent = count.toLocaleString("en");
    const change = figure.parentElement.querySelector(".change");
    change.textContent = changeText(count, Number(figure.dataset.before));
    if (word === "requests" && count > 0) view.querySelector("[data-none]")?.remove();
  }
  const legend = view.querySelectorAll("[data-sum]");
  legend.forEach((part, at) => {
    const count = Math.max(0, Number(part.dataset.sum) + more[at]);
    part.hidden = count === 0;
    if (part.lastChild.nodeType !== Node.TEXT_NODE) part.append("");
    part.lastChild.textContent = `${part.dataset.name}: ${count.toLocaleString("en")}`;
  });
  const bar = view.querySelector("[data-counts]");
  drawBar(bar, bar.dataset.counts.split(" ").map((count, at) => Number(count) + more[at]), legend);
}

// Counts down to the ends of back-offs. Returns whether one has ended.
function countDown(view, now) {
  let isOver = false;
  for (const end of view.querySelectorAll("[data-until]")) {
    const left = Math.ceil((Date.parse(end.dataset.until) - now) / 1000);
    end.textContent = left > 0 ? `ends in ${lengthText(left)}` : "over";
    isOver ||= left <= 0;
  }
  return isOver;
}

function watchOverview(panel) {
  const button = panel.querySelector("button");
  const status = panel.querySelector("[role=status]");
  let source = null;
  let isPaused = false;
  let isLoading = false;
  let isChanged = false;
  let next = performance.now() + LOAD_EVERY;
  let view, totals, clockAhead;

  const take = (found) => {
    view = found;
    totals = JSON.parse(view.dataset.totals);
    // The clock of this machine may differ from the proxy's.
    clockAhead = Date.now() - Date.parse(view.dataset.now);
  };
  const show = (event) => {
    const newer = JSON.parse(event.data);
    // A new process counts from zero.
    if (newer.since !== totals.since) {
      next = Math.min(next, performance.now());
      isChanged = true;
      return;
    }
    const words = Object.keys(newer.classes);
    const more = words.map((word) => newer.classes[word] - totals.classes[word]);
    isChanged ||= more.some((count) => count !== 0);
    addCounts(view, words, more);
  };
  const stop = () => {
    source?.close();
    source = null;
  };
  const start = () => {
    if (isPaused || source !== null || document.hidden) return;
    source = new EventSource(new URL(panel.dataset.overview, document.baseURI));
    source.addEventListener("counts", show);
    source.addEventListener("open", () => {
      panel.dataset.state = "live";
      status.textContent = "";
    });
    source.addEventListener("error", () => {
      // The session has ended, or there are too many watchers: the browser does not retry.
      if (source !== null && source.readyState === EventSource.CLOSED) {
        pause(true);
        status.textContent = "The live counts have ended: the session is over, or there are too many watchers.";
      }
    });
  };
  const pause = (isWanted) => {
    isPaused = isWanted;
    button.textContent = isPaused ? "Watch live" : "Pause";
    button.setAttribute("aria-pressed", String(!isPaused));
    if (isPaused) {
      stop();
      panel.dataset.state = "paused";
    } else start();
  };
  const load = async () => {
    isLoading = true;
    const begun = performance.now();
    const answer = await fetch(location.href).catch(() => null);
    // If the session has ended, the request is redirected to the sign-in page.
    if (answer?.redirected) {
      pause(true);
      status.textContent = "You are signed out. Load the page again.";
      return;
    }
    const text = answer?.ok ? await answer.text() : "";
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("#overview");
    if (fresh !== null && !isPaused) {
      // Sections that the reader has opened stay open.
      const folds = view.querySelectorAll("details:not(.release)");
      fresh.querySelectorAll("details:not(.release)").forEach((fold, at) => {
        fold.open = folds[at]?.open ?? false;
      });
      showTimes(fresh);
      view.replaceWith(fresh);
      take(fresh);
      isChanged = false;
    }
    next = performance.now() + Math.max(LOAD_EVERY, LOAD_SHARE * (performance.now() - begun));
    isLoading = false;
  };
  const tick = () => {
    const now = Date.now() - clockAhead;
    isChanged = countDown(view, now) || Date.parse(view.dataset.ends) <= now || isChanged;
    // A reload would lose the reader's focus, or the text in a form.
    const isInUse = view.contains(document.activeElement) || view.querySelector("details.release[open]");
    if (isChanged && !isPaused && !isLoading && !isInUse && !document.hidden && next <= performance.now()) load();
  };
  button.addEventListener("click", () => pause(!isPaused));
  // A browser allows few connections to one host, and a hidden page needs none.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  take(document.querySelector("#overview"));
  panel.hidden = false;
  start();
  window.setInterval(tick, 1000);
}

for (const panel of document.querySelectorAll("[data-overview]")) watchOverview(panel);

// The menu is one line. On a phone the entry of this page may lie outside the visible part.
function showMenuEntry() {
  const entry = document.querySelector(".top [aria-current]");
  if (entry === null) return;
  const menu = entry.closest("nav");
  menu.scrollLeft = entry.offsetLeft - menu.offsetLeft - (menu.clientWidth - entry.offsetWidth) / 2;
}

showMenuEntry();
