// The page as a whole: which part of it is shown, when it is drawn, and who looks at it.

import { Charts } from "./charts.js";
import { Detail, opened } from "./detail.js";
import { $, show } from "./elements.js";
import { Feed } from "./feed.js";
import { Locks } from "./locks.js";
import { lastHeard, token } from "./server.js";
import { Table } from "./table.js";

const DRAW_MS = 250;

let isDirty = true;
let drawnAt = 0;
let lostAt = null;
let shown = opened();

function changed() {
  isDirty = true;
}

const locks = new Locks(changed, (state) => {
  if (state === "live") lostAt = null;
  else lostAt ??= lastHeard();
  const since = lostAt?.toLocaleTimeString();
  $("connection").dataset.state = state;
  $("connection").textContent = state === "live" ? "live" : `connection lost, showing state of ${since}`;
});
const charts = new Charts($("charts"), $("chart"));
const table = new Table(locks, changed);
const detail = new Detail(locks);
const feed = new Feed(locks, changed);

// Times run down every second; what happens is shown sooner.
function tick() {
  const isOn = !$("feed").hidden || !$("detail").hidden;
  if (!isOn || !(isDirty || Date.now() - drawnAt > 1000)) return;
  const resource = opened();
  show("overview", !resource);
  show("feed", !resource);
  show("detail", Boolean(resource));
  if (resource) {
    detail.draw(resource);
  } else {
    if (isDirty) {
      table.choose();
      feed.draw();
    }
    table.draw();
  }
  if (resource !== shown) turn(resource);
  isDirty = false;
  drawnAt = Date.now();
}

// Takes the keyboard, and whoever is read to, along to the other page: to its title, or back to the lock's row.
function turn(resource) {
  document.title = `${resource || "Locks"} · ferrolho`;
  const link = [...$("rows").querySelectorAll("a")].find((each) => each.textContent === shown);
  (resource ? $("detail-title") : (link ?? $("locks-title"))).focus();
  shown = resource;
}

async function start() {
  show("login", false);
  show("feed", true);
  show("logout", Boolean(token.get()));
  isDirty = true;
  tick();
  charts.follow();
  locks.count();
  detail.ask().catch(() => {});
  try {
    await locks.follow();
  } catch (error) {
    for (const part of ["charts", "overview", "detail", "feed"]) show(part, false);
    show("login", true);
    $("connection").textContent = "not signed in";
    $("connection").dataset.state = "";
    $("login-error").textContent = token.get() ? error.message : "";
    $("token").focus();
  }
}

$("example").textContent = `curl -d '{"owner":"me","ttl_seconds":60}' ${location.origin}/locks/my-job`;
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
addEventListener("hashchange", changed);
setInterval(tick, DRAW_MS);
start();
