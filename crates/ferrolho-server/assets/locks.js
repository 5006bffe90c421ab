// What is known of the locks: listed once, then kept true by events.
//
// How many wait for each is asked for now and then: events do not tell.
//
// Events are followed before the list is read, and applied after it. A token that is lower than the one that is known
// is old news; everything that the list was too early for comes as an event.

import { allLocks, call, events } from "./server.js";

const MAX_EVENTS = 500;
const PAUSES_MS = [500, 1000, 2000, 5000];
const LINES_EVERY_MS = 2000;

export class Locks {
  constructor(onChange, onState) {
    this.all = new Map();
    // Whether all of them were listed once.
    this.isListed = false;
    // Whether the last list came to its end, so that events can go on from it.
    this.isWhole = false;
    this.recent = [];
    this.changed = new Map();
    this.waiting = new Map();
    this.lastId = null;
    this.onChange = onChange;
    this.onState = onState;
  }

  // Asks how many wait, until the server refuses us.
  async count() {
    for (;;) {
      try {
        const { lines } = await (await call("/waiters")).json();
        this.waiting = new Map(lines.map((line) => [line.resource, line.waiters]));
        this.onChange();
      } catch (error) {
        if (error.status === 401 || error.status === 403) return;
      }
      await new Promise((done) => setTimeout(done, LINES_EVERY_MS));
    }
  }

  // Follows the server until it refuses us.
  async follow() {
    for (let tries = 0; ; tries += 1) {
      try {
        await this.read(() => {
          tries = 0;
        });
      } catch (error) {
        if (error.status === 401 || error.status === 403) throw error;
      }
      this.onState("lost");
      await new Promise((done) => setTimeout(done, PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)]));
    }
  }

  // Reads one stream to its end. A list that did not come whole is asked for again by the next: until then the id of
  // the last event says nothing about what is known.
  async read(onOpen) {
    const fail = new AbortController();
    let loading = null;
    const start = () => {
      this.isWhole = false;
      const early = [];
      loading = early;
      this.load(early, () => loading === early)
        .then((isDone) => {
          if (isDone) loading = null;
        })
        .catch((error) => fail.abort(error));
    };
    const known = this.isWhole ? this.lastId : null;
    const opened = () => {
      onOpen();
      if (known === null) start();
      else this.onState("live");
    };
    try {
      for await (const { name, data, id } of events(known, opened)) {
        fail.signal.throwIfAborted();
        if (id !== null) this.lastId = id;
        if (name === "reset") start();
        else if (name === "dropped") return;
        else if (data !== null && data.kind) this.take(data, loading);
      }
    } finally {
      // A list that is still on its way has no events any more to bring it up to date.
      loading = null;
    }
  }

  // Lists all locks, then applies what happened meanwhile; false when a newer list was begun or the stream has ended.
  async load(early, isWanted) {
    const listed = new Map();
    for await (const page of allLocks()) {
      if (!isWanted()) return false;
      for (const lock of page) listed.set(lock.resource, lock);
      if (this.all.size === 0) {
        this.all = listed;
        this.onChange();
      }
    }
    if (!isWanted()) return false;
    this.all = listed;
    this.changed.clear();
    for (const event of early) this.apply(event);
    this.isListed = true;
    this.isWhole = true;
    this.onState("live");
    this.onChange();
    return true;
  }

  take(event, early) {
    if (early) early.push(event);
    else this.apply(event);
    this.recent.unshift(event);
    this.recent.length = Math.min(this.recent.length, MAX_EVENTS);
    this.onChange();
  }

  apply({ kind, resource, lock }) {
    const known = this.all.get(resource);
    if (known && known.fencing_token > lock.fencing_token) return;
    if (kind === "acquired" || kind === "renewed") {
      this.all.set(resource, lock);
      this.changed.set(resource, Date.now());
    } else {
      this.all.delete(resource);
      this.changed.delete(resource);
    }
  }
}
