// What the page is made of. Whatever callers named is text and never markup.

import { serverNow } from "./server.js";

export const $ = (id) => document.getElementById(id);

export function show(id, is) {
  $(id).hidden = !is;
}

export function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// What cannot be seen, or moves what stands around it: two names that differ by it alone would look the same.
const UNSEEN = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]|(?!\u0020)\p{Zs})/u;

// A name of a caller's choosing: apart from what stands around it, whatever direction it is written in.
export function named(text) {
  const made = element("bdi", undefined, { class: "name" });
  text.split(UNSEEN).forEach((part, at) => {
    if (at % 2 === 0) {
      made.append(part);
    } else {
      const code = `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      made.append(element("span", part, { class: "unseen", "data-code": code }));
    }
  });
  // The same letters may be written in two ways.
  if (text !== text.normalize("NFC")) made.append(element("span", "", { class: "unseen", "data-code": "not NFC" }));
  return made;
}

export function linked(resource) {
  const link = element("a", undefined, { href: `#${encodeURIComponent(resource)}` });
  link.append(named(resource));
  return link;
}

// A time in the reader's zone, with its day unless that is today; UTC on hover.
export function time(text) {
  const at = new Date(text);
  const isToday = at.toDateString() === new Date().toDateString();
  const shown = isToday ? at.toLocaleTimeString() : at.toLocaleString();
  return element("time", shown, { datetime: text, title: `${text} (UTC)` });
}

// How many milliseconds a lock has left, by the server's clock.
export function left(lock) {
  return Math.max(0, Date.parse(lock.expires_at) - serverNow());
}

export function span(milliseconds) {
  const seconds = Math.ceil(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
