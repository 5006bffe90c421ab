// The last minutes in small charts, from what the server counts (/metrics). Where nothing is known there is a gap.

import { call } from "./server.js";

const EVERY_MS = 2000;
const POINTS = 150;
// As the template draws them.
const WIDTH = 150;
const HEIGHT = 40;

// The values of the page, by name and labels.
function read(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && !line.startsWith("#")) values.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return values;
}

const gauge = (name) => (now) => now.get(name) ?? 0;

const rate = (name) => (now, before, seconds) => Math.max(0, (now.get(name) ?? 0) - (before.get(name) ?? 0)) / seconds;

// The mean of what has been measured since the last look; what it was when nothing has.
const mean = (name) => (now, before, seconds, last) => {
  const sum = rate(`${name}_sum`)(now, before, seconds);
  const count = rate(`${name}_count`)(now, before, seconds);
  return count > 0 ? sum / count : last;
};

const rounded = (value) => (value < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value).toString());

const CHARTS = [
  ["Live locks", gauge("ferrolho_live_locks"), rounded],
  ["Grants a second", rate('ferrolho_acquires_total{outcome="granted"}'), rounded],
  ["Refusals a second", rate('ferrolho_acquires_total{outcome="held"}'), rounded],
  ["Waiting", gauge("ferrolho_waiters"), rounded],
  ["Hand-over", mean("ferrolho_hand_over_duration_seconds"), (seconds) => `${rounded(seconds * 1000)} ms`],
];

// A line through the points that are known, the newest at the right edge.
function path(points) {
  const most = Math.max(...points, 1e-9);
  const step = WIDTH / (POINTS - 1);
  const from = WIDTH - (points.length - 1) * step;
  const place = (value, n) => {
    if (value === null) return "";
    const at = `${(from + n * step).toFixed(1)} ${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
    // Where a line begins there is a dot, so that a point that stands alone is seen.
    return n > 0 && points[n - 1] !== null ? `L${at}` : `M${at}h0`;
  };
  return points.map(place).join("");
}

export class Charts {
  constructor(place, template) {
    this.place = place;
    this.lines = CHARTS.map(([title, value, text]) => {
      const figure = template.content.cloneNode(true).firstElementChild;
      place.append(figure);
      const [caption, line] = ["figcaption", "path"].map((name) => figure.querySelector(name));
      return { title, value, text, caption, line, points: [] };
    });
  }

  // Looks again and again, until the server does not let us.
  async follow() {
    let before = null;
    let at = 0;
    for (;;) {
      try {
        const now = read(await (await call("/metrics")).text());
        const seconds = (performance.now() - at) / 1000;
        at = performance.now();
        if (before) this.draw((chart, last) => chart.value(now, before, seconds, last));
        before = now;
      } catch (error) {
        if (error.status) {
          this.place.hidden = true;
          return;
        }
        before = null;
        this.draw(() => null);
      }
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }

  // Adds what each chart's value is now; null when it is not known.
  draw(valueOf) {
    this.place.hidden = false;
    for (const chart of this.lines) {
      const known = chart.points.filter((value) => value !== null);
      const value = valueOf(chart, known.at(-1) ?? 0);
      chart.points.push(value);
      chart.points.splice(0, chart.points.length - POINTS);
      chart.line.setAttribute("d", path(chart.points));
      const shown = document.createElement("strong");
      shown.textContent = value === null ? "not known" : chart.text(value);
      chart.caption.replaceChildren(chart.title, " ", shown);
    }
  }
}
