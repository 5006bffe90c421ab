// The table of locks. A row stays the same element for as long as its lock does, so that what a reader has selected or
// focused stays, too; only the time that is left is written again and again.

import { $, element, left, linked, named, show, span, time } from "./elements.js";

const PAGE_ROWS = 200;
const FRESH_MS = 2000;

export class Table {
  constructor(locks, onChange) {
    this.locks = locks;
    this.most = PAGE_ROWS;
    this.sort = { by: "resource", up: true };
    this.found = [];
    this.rows = new Map();
    this.keys = {
      resource: (lock) => lock.resource,
      owner: (lock) => lock.owner,
      since: (lock) => lock.acquired_at,
      left: (lock) => lock.expires_at,
      waiting: (lock) => this.locks.waiting.get(lock.resource) ?? 0,
      token: (lock) => lock.fencing_token,
    };
    for (const id of ["prefix", "owner"]) {
      $(id).addEventListener("input", () => {
        this.most = PAGE_ROWS;
        onChange();
      });
    }
    $("show-more").addEventListener("click", () => {
      this.most += PAGE_ROWS;
      onChange();
    });
    for (const button of document.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => {
        this.sortBy(button);
        onChange();
      });
    }
  }

  sortBy(button) {
    const by = button.dataset.sort;
    this.sort = { by, up: this.sort.by === by ? !this.sort.up : by !== "waiting" };
    for (const other of document.querySelectorAll("[data-sort]")) other.parentElement.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", this.sort.up ? "ascending" : "descending");
  }

  // Chooses anew what is shown, after something has changed.
  choose() {
    const prefix = $("prefix").value;
    const owner = $("owner").value.trim();
    const found = [];
    for (const lock of this.locks.all.values()) {
      if (lock.resource.startsWith(prefix) && (!owner || lock.owner.includes(owner))) found.push(lock);
    }
    const key = this.keys[this.sort.by];
    const order = this.sort.up ? 1 : -1;
    this.found = found.sort((a, b) => (key(a) < key(b) ? -order : key(a) > key(b) ? order : 0));
  }

  draw() {
    const rows = new Map();
    for (const lock of this.found.slice(0, this.most)) {
      const row = this.rows.get(lock.resource);
      rows.set(lock.resource, row?.lock === lock ? row : makeRow(lock));
    }
    this.rows = rows;
    this.place([...rows.values()].map((row) => row.element));
    for (const row of rows.values()) this.bringUpToDate(row);
    const all = this.locks.all.size;
    $("count").textContent = this.found.length === all ? `${all}` : `${this.found.length} of ${all}`;
    show("more", this.found.length > this.most);
    $("hidden-count").textContent = `${this.found.length - this.most} more match`;
    show("empty", this.locks.isListed && all === 0);
    show("no-match", all > 0 && this.found.length === 0);
  }

  // Puts the rows into the page, touching nothing when they stand there already.
  place(elements) {
    const body = $("rows");
    const isSame = elements.length === body.children.length && elements.every((row, n) => row === body.children[n]);
    if (isSame) return;
    const focused = body.contains(document.activeElement) ? document.activeElement.hash : null;
    body.replaceChildren(...elements);
    if (focused) [...body.querySelectorAll("a")].find((link) => link.hash === focused)?.focus();
  }

  bringUpToDate({ lock, element: row, bar, rest, waiting }) {
    const remaining = left(lock);
    bar.value = Math.min(remaining, bar.max);
    rest.data = span(remaining);
    const waiters = this.locks.waiting.get(lock.resource);
    waiting.textContent = waiters ? String(waiters) : "";
    const changed = this.locks.changed.get(lock.resource);
    row.className = remaining === 0 ? "over" : changed && Date.now() - changed < FRESH_MS ? "fresh" : "";
  }
}

function makeRow(lock) {
  const row = element("tr");
  const cell = (...parts) => {
    const made = element("td");
    made.append(...parts);
    row.append(made);
    return made;
  };
  cell(linked(lock.resource));
  const owner = cell(named(lock.owner));
  if (lock.principal) {
    const principal = element("span", undefined, { class: "quiet", title: "principal" });
    principal.append(named(lock.principal));
    owner.append(" ", principal);
  }
  cell(time(lock.acquired_at));
  const life = Date.parse(lock.expires_at) - Date.parse(lock.acquired_at);
  const bar = element("progress", undefined, { max: life, "aria-label": "time left" });
  const rest = document.createTextNode("");
  cell(bar, rest);
  const waiting = cell();
  const token = cell(String(lock.fencing_token));
  for (const number of [waiting, token]) number.className = "number";
  return { lock, element: row, bar, rest, waiting };
}
