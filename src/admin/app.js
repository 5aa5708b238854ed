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
  let seen = 0;
  let shown = 0;

  // A screen reader is told how many have come, at times; not each of them.
  const count = () => {
    if (shown !== seen) {
      shown = seen;
      status.textContent = seen === 1 ? "1 new decision" : `${seen} new decisions`;
    }
  };
  const add = (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    addLocalTime(template.content);
    for (const row of template.content.children) row.classList.add("fresh");
    rows.prepend(template.content);
    while (ROWS_MAX < rows.children.length) rows.lastElementChild.remove();
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
    source = new EventSource(live.dataset.live);
    source.addEventListener("decision", add);
    source.addEventListener("missed", (event) => {
      status.textContent = `${event.data} decisions were left out`;
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
