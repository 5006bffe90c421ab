// The server: requests with the tab's token, and the stream of events.

const TOKEN = "ferrolho-token";
// The server sends something at least every 15 seconds: a stream that is silent for longer than two of them is dead,
// also when nobody has said so.
const SILENCE_MS = 35_000;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

function headers(more = {}) {
  return token.get() ? { ...more, Authorization: `Bearer ${token.get()}` } : more;
}

// How many milliseconds the server's clock is ahead of this one's, as far as whole seconds tell.
let ahead = 0;

export function serverNow() {
  return Date.now() + ahead;
}

export async function call(path, options = {}) {
  const asked = Date.now();
  const response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
  const date = Date.parse(response.headers.get("date"));
  if (!Number.isNaN(date)) {
    const off = date + 500 - (asked + Date.now()) / 2;
    ahead = Math.abs(off) > 2000 ? off : 0;
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem.detail ?? `HTTP ${response.status}`);
  }
  return response;
}

export async function* allLocks() {
  let cursor = "";
  do {
    const page = await (await call(`/locks?limit=1000${cursor}`)).json();
    yield page.locks;
    cursor = page.next_cursor === null ? "" : `&cursor=${encodeURIComponent(page.next_cursor)}`;
  } while (cursor);
}

// When the stream last said something, by this machine's clock: what is shown is as old as that when it is lost.
let heardAt = Date.now();

export function lastHeard() {
  return new Date(heardAt);
}

// Reads the stream block by block: {name, data, id}. Ends, or fails, when the connection does or falls silent.
export async function* events(lastId, onOpen) {
  const silence = new AbortController();
  let alarm;
  const heard = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  heard();
  try {
    const headers = lastId ? { "Last-Event-ID": lastId } : {};
    const response = await call("/events", { headers, signal: silence.signal });
    heardAt = Date.now();
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      heardAt = Date.now();
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) yield parse(block);
    }
  } finally {
    clearTimeout(alarm);
    silence.abort();
  }
}

function parse(block) {
  const parsed = { name: "message", data: null, id: null };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) parsed.id = line.slice(4);
    if (line.startsWith("event: ")) parsed.name = line.slice(7);
    if (line.startsWith("data: ")) parsed.data = JSON.parse(line.slice(6));
  }
  return parsed;
}

export function lockPath(resource) {
  return `/locks/${encodeURIComponent(resource)}`;
}
