// One lock's own page: what it is, who waits for it, what happened to it, and for administrators, taking it away.

import { $, element, left, named, show, span, time } from "./elements.js";
import { line } from "./feed.js";
import { call, lockPath } from "./server.js";

const ASK_MS = 1000;

// The lock whose page the address asks for; none for the overview.
export function opened() {
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

const quiet = (text) => element("li", text, { class: "quiet" });

export class Detail {
  constructor(locks) {
    this.locks = locks;
    this.isAdmin = false;
    this.askedAt = 0;
    this.asked = null;
    $("force").addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.force();
    });
  }

  // Finds out whether the caller may take locks away.
  async ask() {
    const { rights } = await (await call("/whoami")).json();
    this.isAdmin = rights.includes("admin");
  }

  draw(resource) {
    if (this.asked !== resource) {
      for (const id of ["waiters", "history"]) $(id).replaceChildren();
      $("force-error").textContent = "";
    }
    $("detail-title").replaceChildren(named(resource));
    const lock = this.locks.all.get(resource);
    this.meant = lock?.fencing_token;
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
      const question = ["Takes ", named(resource), " away from ", named(lock.owner), ". Its work may go on until it looks."];
      $("force-question").replaceChildren(...question);
    }
    show("force", this.isAdmin && Boolean(lock));
    if (this.asked !== resource || Date.now() - this.askedAt > ASK_MS) {
      this.asked = resource;
      this.askedAt = Date.now();
      this.list(resource, "waiters", ({ waiters }) => waiters.map(waiterItem), "nobody");
      this.list(resource, "events", ({ events }) => events.reverse().map(line), "nothing that this server remembers");
    }
  }

  // Asks the server for a list about this lock, and shows it. What is not known is not shown as if it were.
  async list(resource, what, items, nothing) {
    const place = $(what === "events" ? "history" : what);
    let found;
    try {
      found = items(await (await call(`${lockPath(resource)}/${what}`)).json());
    } catch {
      found = [quiet("not known")];
    }
    if (resource === opened()) place.replaceChildren(...(found.length ? found : [quiet(nothing)]));
  }

  async force() {
    $("force-error").textContent = "";
    try {
      // The grant that the question names, and not one that came after it.
      const body = JSON.stringify({ reason: $("reason").value, fencing_token: this.meant });
      await call(`${lockPath(opened())}/force-release`, { method: "POST", body });
      $("reason").value = "";
    } catch (error) {
      $("force-error").textContent = error.message;
    }
  }
}

function waiterItem(waiter) {
  const item = element("li");
  item.append(named(waiter.owner), " since ", time(waiter.since));
  return item;
}
