// Times in the zone of whoever looks, and the live tail. Every page works without.
"use strict";

function addLocalTime(root) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone === "UTC") return;
  const form = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const local = document.createElement("span");
    local.className = "local";
    local.textContent = `${form.format(at)} local`;
    time.append(local);
  }
}

// Rows that stay: a browser is not to fill with what nobody reads.
const ROWS_MAX = 200;

function follow(live) {
  const rows = document.querySelector(live.dataset.rows);
  const button = live.querySelector("button");
  const status = live.querySelector("[role=status]");
  let source = null;
  // So that nothing is missed between the page and the view, nor while it pauses.
  let last = live.dataset.last;
  let seen = 0;
  let leftOut = 0;

  // A screen reader is told how many have come, at times; not each of them.
  const count = () => {
    if (seen === 0 && leftOut === 0) return;
    let text = seen === 1 ? "1 new decision" : `${seen} new decisions`;
    if (leftOut !== 0) text += `, and ${leftOut} or more that were left out: load the page again for all`;
    if (status.textContent !== text) status.textContent = text;
  };
  const add = (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    addLocalTime(template.content);
    for (const row of template.content.children) row.classList.add("fresh");
    rows.prepend(template.content);
    while (ROWS_MAX < rows.children.length) rows.lastElementChild.remove();
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
      // A session that is over, or too many who watch: the browser does not try again.
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

addLocalTime(document);
for (const live of document.querySelectorAll("[data-live]")) follow(live);

// The menu is one line. On a phone the entry of this page may be beyond its end.
function showMenuEntry() {
  const entry = document.querySelector(".top [aria-current]");
  if (entry === null) return;
  const menu = entry.closest("nav");
  menu.scrollLeft = entry.offsetLeft - menu.offsetLeft - (menu.clientWidth - entry.offsetWidth) / 2;
}

showMenuEntry();
