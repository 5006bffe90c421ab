// What just happened, as lines.

import { $, element, linked, named, show, time } from "./elements.js";

const SHOWN_EVENTS = 50;

export function line(event) {
  const item = element("li");
  item.append(time(event.at), element("span", event.kind, { class: "kind", "data-kind": event.kind }), " ");
  item.append(linked(event.resource), " by ", named(event.lock.owner));
  if (event.reason) item.append(": ", named(event.reason));
  return item;
}

export class Feed {
  constructor(locks, onChange) {
    this.locks = locks;
    for (const id of ["kind", "text"]) $(id).addEventListener("input", onChange);
  }

  draw() {
    const kind = $("kind").value;
    const text = $("text").value;
    const matches = (event) =>
      (!kind || event.kind === kind) && (event.resource.includes(text) || event.lock.owner.includes(text));
    const shown = this.locks.recent.filter(matches).slice(0, SHOWN_EVENTS);
    $("events").replaceChildren(...shown.map(line));
    show("no-event", shown.length === 0);
  }
}
