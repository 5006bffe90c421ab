// A server, a browser, and what a person does with them.

import { spawn } from "node:child_process";
import { mkdtemp, mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const PROGRAM = process.env.FERROLHO_PROGRAM ?? "target/debug/ferrolho";
const PICTURES = process.env.FERROLHO_PICTURES ?? "target/browser";

// A running server on a folder of its own.
export class Server {
  static async start({ port = 0, args = [], folder } = {}) {
    const server = new Server();
    server.folder = folder ?? (await mkdtemp(path.join(tmpdir(), "ferrolho-browser-")));
    const listen = ["serve", "--listen", `127.0.0.1:${port}`, ...args];
    server.child = spawn(path.resolve(PROGRAM), listen, { cwd: server.folder, stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface({ input: server.child.stdout });
    server.url = await new Promise((ready, failed) => {
      lines.once("line", (line) => ready(line.match(/http:\/\/\S+/)[0]));
      server.child.once("exit", () => failed(new Error("the server ended before it was ready")));
    });
    server.port = new URL(server.url).port;
    return server;
  }

  async stop() {
    const ended = new Promise((done) => this.child.once("exit", done));
    this.child.kill("SIGKILL");
    await ended;
  }

  async remove() {
    await this.stop();
    await rm(this.folder, { recursive: true });
  }

  async call(method, target, body, headers = {}) {
    const response = await fetch(this.url + target, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  }

  acquire(resource, owner, ttl_seconds = 600, more = {}, headers = {}) {
    const target = `/locks/${encodeURIComponent(resource)}`;
    return this.call("POST", target, { owner, ttl_seconds, ...more }, headers);
  }

  release(resource, owner, headers = {}) {
    return this.call("POST", `/locks/${encodeURIComponent(resource)}/release`, { owner }, headers);
  }
}

export async function browser() {
  await mkdir(PICTURES, { recursive: true });
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
}

// Opens the page, and fails the test for anything that the browser complains of or that comes from elsewhere.
export async function open(chrome, url, options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("dialog", (dialog) => page.complaints.push(`a dialog: ${dialog.message()}`));
  page.on("console", (message) => {
    if (/Content Security Policy/.test(message.text())) page.complaints.push(message.text());
  });
  page.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(url).host) page.complaints.push(request.url());
  });
  await page.goto(url);
  return page;
}

export const picture = (page, name) => page.screenshot({ path: path.join(PICTURES, `${name}.png`) });

export const row = (page, name) => page.locator("#rows tr").filter({ has: page.getByText(name, { exact: true }) });
