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

  async read(onOpen) {
    let loading = null;
    let early = [];
    const load = async () => {
      const listed = new Map();
      for await (const page of allLocks()) {
        for (const lock of page) listed.set(lock.resource, lock);
        if (this.all.size === 0) {
          this.all = listed;
          this.onChange();
        }
      }
      this.all = listed;
      this.isListed = true;
      for (const event of early) this.apply(event);
      early = [];
      loading = null;
      this.onState("live");
      this.onChange();
    };
    const fail = new AbortController();
    const start = () => {
      loading = load().catch((error) => fail.abort(error));
    };
    const known = this.lastId;
    for await (const { name, data, id } of events(known, () => {
      onOpen();
      if (known === null) start();
      else this.onState("live");
    })) {
      fail.signal.throwIfAborted();
      if (id !== null) this.lastId = id;
      if (name === "reset") start();
      else if (name === "dropped") return;
      else if (data !== null && data.kind) {
        if (loading) early.push(data);
        else this.apply(data);
        this.recent.unshift(data);
        this.recent.length = Math.min(this.recent.length, MAX_EVENTS);
        this.onChange();
      }
    }
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
