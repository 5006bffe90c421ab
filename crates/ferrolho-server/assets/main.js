// The page: what the locks are, as elements. Whatever callers named is text and never markup.

import { Charts } from "./charts.js";
import { Locks } from "./locks.js";
import { call, lockPath, serverNow, token } from "./server.js";

const PAGE_ROWS = 200;
const FRESH_MS = 2000;
const DRAW_MS = 250;
const SHOWN_EVENTS = 50;

const $ = (id) => document.getElementById(id);
const show = (id, is) => {
  $(id).hidden = !is;
};

let rows = PAGE_ROWS;
let sort = { by: "resource", up: true };
let isDirty = true;
let lostAt = null;

const locks = new Locks(
  () => {
    isDirty = true;
  },
  (state) => {
    if (state === "live") lostAt = null;
    else lostAt ??= new Date();
    const since = lostAt?.toLocaleTimeString();
    $("connection").dataset.state = state;
    $("connection").textContent = state === "live" ? "live" : `connection lost, showing state of ${since}`;
  },
);

const charts = new Charts($("charts"), $("chart"));

const keys = {
  resource: (lock) => lock.resource,
  owner: (lock) => lock.owner,
  since: (lock) => lock.acquired_at,
  left: (lock) => lock.expires_at,
  token: (lock) => lock.fencing_token,
};

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A name of a caller's choosing: apart from what stands around it, whatever direction it is written in.
function named(text) {
  return element("bdi", text, { class: "name" });
}

function time(text) {
  return element("time", new Date(text).toLocaleTimeString(), { datetime: text, title: `${text} (UTC)` });
}

function left(lock) {
  return Math.max(0, Date.parse(lock.expires_at) - serverNow());
}

function span(milliseconds) {
  const seconds = Math.ceil(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function chosen() {
  const prefix = $("prefix").value;
  const owner = $("owner").value.trim();
  const found = [];
  for (const lock of locks.all.values()) {
    if (lock.resource.startsWith(prefix) && (!owner || lock.owner.includes(owner))) found.push(lock);
  }
  const key = keys[sort.by];
  const order = sort.up ? 1 : -1;
  return found.sort((a, b) => (key(a) < key(b) ? -order : key(a) > key(b) ? order : 0));
}

function row(lock) {
  const made = element("tr");
  const link = element("a", undefined, { href: `#${encodeURIComponent(lock.resource)}` });
  link.append(named(lock.resource));
  const name = element("td");
  name.append(link);
  const owner = element("td");
  owner.append(named(lock.owner));
  if (lock.principal) owner.append(" ", element("span", lock.principal, { class: "quiet" }));
  const since = element("td");
  since.append(time(lock.acquired_at));
  const rest = element("td");
  const life = Date.parse(lock.expires_at) - Date.parse(lock.acquired_at);
  const remaining = left(lock);
  const bar = element("progress", undefined, { max: life, value: Math.min(remaining, life), "aria-label": "time left" });
  rest.append(bar, span(remaining));
  made.append(name, owner, since, rest, element("td", String(lock.fencing_token), { class: "number" }));
  const changed = locks.changed.get(lock.resource);
  if (changed && Date.now() - changed < FRESH_MS) made.className = "fresh";
  if (remaining === 0) made.className = "over";
  return made;
}

function drawOverview() {
  const found = chosen();
  const focused = $("rows").contains(document.activeElement) ? document.activeElement.hash : null;
  $("rows").replaceChildren(...found.slice(0, rows).map(row));
  if (focused) [...$("rows").querySelectorAll("a")].find((link) => link.hash === focused)?.focus();
  $("count").textContent = found.length === locks.all.size ? `${found.length}` : `${found.length} of ${locks.all.size}`;
  show("more", found.length > rows);
  $("hidden-count").textContent = `${found.length - rows} more match`;
  show("empty", locks.all.size === 0);
  show("no-match", locks.all.size > 0 && found.length === 0);
}

function drawEvents(only) {
  const shown = locks.recent.filter((event) => !only || event.resource === only).slice(0, SHOWN_EVENTS);
  $("events").replaceChildren(
    ...shown.map((event) => {
      const item = element("li");
      item.append(time(event.at), element("span", event.kind, { class: "kind", "data-kind": event.kind }), " ");
      item.append(named(event.resource), " by ", named(event.lock.owner));
      if (event.reason) item.append(": ", named(event.reason));
      return item;
    }),
  );
}

function opened() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function fact(name, value) {
  const shown = element("dd");
  shown.append(value);
  return [element("dt", name), shown];
}

function drawDetail(resource) {
  $("detail-title").replaceChildren(named(resource));
  const lock = locks.all.get(resource);
  if (!lock) {
    $("facts").replaceChildren(...fact("State", "free"));
  } else {
    $("facts").replaceChildren(
      ...fact("Owner", named(lock.owner)),
      ...(lock.principal ? fact("Principal", named(lock.principal)) : []),
      ...fact("Held since", time(lock.acquired_at)),
      ...fact("Ends in", span(left(lock))),
      ...fact("Fencing token", String(lock.fencing_token)),
      ...(lock.metadata ? fact("Metadata", element("code", JSON.stringify(lock.metadata, null, 2))) : []),
    );
  }
  show("force", Boolean(token.get() && lock));
  if (lock) {
    const question = ["Takes ", named(resource), " away from ", named(lock.owner), ". Its work may go on until it looks."];
    $("force-question").replaceChildren(...question);
  }
}

async function drawWaiters(resource) {
  try {
    const { waiters } = await (await call(`${lockPath(resource)}/waiters`)).json();
    if (resource !== opened()) return;
    const items = waiters.map((waiter) => {
      const item = element("li");
      item.append(named(waiter.owner), " since ", time(waiter.since));
      return item;
    });
    $("waiters").replaceChildren(...(items.length ? items : [element("p", "nobody", { class: "quiet" })]));
  } catch {
    $("waiters").replaceChildren(element("p", "not known", { class: "quiet" }));
  }
}

let waitersAt = 0;

function draw() {
  const resource = opened();
  show("overview", !resource);
  show("detail", Boolean(resource));
  if (resource) {
    drawDetail(resource);
    if (Date.now() - waitersAt > 1000) {
      waitersAt = Date.now();
      drawWaiters(resource);
    }
  } else {
    drawOverview();
  }
  drawEvents(resource);
}

let drawnAt = 0;

// Times run down every second; what happens is shown sooner.
function tick() {
  const isDue = isDirty || Date.now() - drawnAt > 1000;
  if (isDue && !$("feed").hidden) {
    isDirty = false;
    drawnAt = Date.now();
    draw();
  }
}

async function start() {
  show("login", false);
  show("feed", true);
  show("logout", Boolean(token.get()));
  draw();
  charts.follow();
  try {
    await locks.follow();
  } catch (error) {
    show("charts", false);
    show("overview", false);
    show("detail", false);
    show("feed", false);
    show("login", true);
    $("connection").textContent = "not signed in";
    $("connection").dataset.state = "";
    $("login-error").textContent = token.get() ? error.message : "";
    $("token").focus();
  }
}

$("example").textContent = `curl -d '{"owner":"me","ttl_seconds":60}' ${location.origin}/locks/my-job`;
for (const id of ["prefix", "owner"]) {
  $(id).addEventListener("input", () => {
    rows = PAGE_ROWS;
    isDirty = true;
  });
}
$("show-more").addEventListener("click", () => {
  rows += PAGE_ROWS;
  isDirty = true;
});
for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    sort = { by: button.dataset.sort, up: sort.by === button.dataset.sort ? !sort.up : true };
    for (const other of document.querySelectorAll("[data-sort]")) other.parentElement.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
    isDirty = true;
  });
}
$("login").addEventListener("submit", (submit) => {
  submit.preventDefault();
  token.set($("token").value.trim());
  $("token").value = "";
  start();
});
$("logout").addEventListener("click", () => {
  token.forget();
  location.reload();
});
$("force").addEventListener("submit", async (submit) => {
  submit.preventDefault();
  $("force-error").textContent = "";
  try {
    const body = JSON.stringify({ reason: $("reason").value });
    await call(`${lockPath(opened())}/force-release`, { method: "POST", body });
    $("reason").value = "";
  } catch (error) {
    $("force-error").textContent = error.message;
  }
});
addEventListener("hashchange", () => {
  waitersAt = 0;
  isDirty = true;
});
setInterval(tick, DRAW_MS);
start();
