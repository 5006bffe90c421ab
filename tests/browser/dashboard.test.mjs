// The dashboard in a real browser, while things happen.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";

import { Server, browser, open, picture, row } from "./page.mjs";
import { Postgres } from "./postgres.mjs";

let chrome;
before(async () => {
  chrome = await browser();
});
after(() => chrome.close());

// A page on a server of its own; whatever the browser complained of fails the test.
function scene(name, act, start = () => Server.start({ args: ["--store", "memory:"] })) {
  test(name, { timeout: 120_000 }, async () => {
    const server = await start();
    const page = await open(chrome, server.url);
    try {
      await act(page, server);
      assert.deepEqual(page.complaints, []);
    } finally {
      await page.context().close();
      await server.remove();
    }
  });
}

scene("an empty page teaches the first line, and it works", async (page, server) => {
  await page.getByText("Nobody holds a lock").waitFor();
  const line = await page.locator("#example").textContent();
  await picture(page, "empty");
  execFileSync("sh", ["-c", line]);
  await row(page, "my-job").waitFor();
  assert.equal((await server.call("GET", "/locks/my-job")).body.owner, "me");
});

scene("locks come, are renewed, and go", async (page, server) => {
  await page.locator('#connection[data-state="live"]').waitFor();
  await server.acquire("payment:42", "worker-1", 600, { metadata: { host: "build-7" } });
  await row(page, "payment:42").getByText("worker-1").waitFor();
  const token = (await server.call("GET", "/locks/payment:42")).body.fencing_token;
  await row(page, "payment:42").getByText(String(token)).waitFor();
  await server.call("POST", "/locks/payment:42/renew", { owner: "worker-1", ttl_seconds: 7200 });
  await row(page, "payment:42").getByText(/^(1 h 59|2 h 0) min/).waitFor();
  await server.release("payment:42", "worker-1");
  await row(page, "payment:42").waitFor({ state: "detached" });
  await server.acquire("short", "worker-2", 1);
  await row(page, "short").waitFor();
  await row(page, "short").waitFor({ state: "detached" });
  await page.locator('#events [data-kind="expired"]').waitFor();
});

scene("a lock's own page shows who waits, and the hand-over", async (page, server) => {
  await server.acquire("team/job", "first", 600, { metadata: { pid: 7 } });
  const waiting = server.acquire("team/job", "second", 600, { wait_seconds: 60 });
  await row(page, "team/job").getByRole("link").click();
  await page.locator("#waiters").getByText("second").waitFor();
  await page.locator("#facts").getByText('"pid": 7').waitFor();
  await picture(page, "lock");
  await server.release("team/job", "first");
  assert.equal((await waiting).body.lock.owner, "second");
  await page.locator("#facts").getByText("second").waitFor();
  await page.getByRole("link", { name: "All locks" }).click();
  await row(page, "team/job").getByText("second").waitFor();
});

scene("names are text, whatever they hold", async (page, server) => {
  const names = ['<img src=x onerror="alert(1)">', "<script>alert(1)</script>", "a&amp;b", "\u202Egnp.exe", "pay\u200Bment", "__proto__", "%2F", "é", "e\u0301"];
  for (const name of names) await server.acquire(name, name, 600, { metadata: { [name]: name } });
  for (const name of names) {
    const link = page.locator(`#rows a[href="#${encodeURIComponent(name).replaceAll('"', "%22")}"]`);
    assert.equal(await link.textContent(), name);
  }
  // What cannot be seen, or turns text around, is shown by its number.
  const codes = await page.locator("#rows td:first-child .unseen").evaluateAll((all) => all.map((one) => one.dataset.code));
  assert.deepEqual(codes.sort(), ["U+200B", "U+202E", "not NFC"]);
  await picture(page, "names");
  await page.locator("#rows a").first().click();
  await page.locator("#facts").waitFor();
});

scene("who waits is counted, and can be sorted by", async (page, server) => {
  for (const name of ["a", "b", "c"]) await server.acquire(name, "holder");
  const waiting = ["x", "y"].map((owner) => server.acquire("b", owner, 600, { wait_seconds: 60 }));
  waiting.push(server.acquire("c", "x", 600, { wait_seconds: 60 }));
  const counts = () => page.locator("#rows tr").evaluateAll((rows) => rows.map((row) => [row.cells[0].textContent, row.cells[4].textContent]));
  const become = async (wanted) => {
    for (let n = 0; n < 200 && JSON.stringify(await counts()) !== JSON.stringify(wanted); n += 1) await page.waitForTimeout(50);
    assert.deepEqual(await counts(), wanted);
  };
  await become([["a", ""], ["b", "2"], ["c", "1"]]);
  await page.getByRole("button", { name: "Waiting" }).click();
  await become([["b", "2"], ["c", "1"], ["a", ""]]);
  await picture(page, "waiting");
  await server.release("b", "holder");
  await server.release("b", "x");
  await server.release("c", "holder");
  await Promise.all(waiting);
  await become([["a", ""], ["b", ""], ["c", ""]]);
});

scene("a lock's page knows what happened before it was opened", async (page, server) => {
  await server.acquire("team/job", "first");
  await server.release("team/job", "first");
  await server.acquire("other", "first");
  await server.acquire("team/job", "second");
  await page.goto(`${server.url}/#team%2Fjob`);
  await page.reload();
  const history = () => page.locator("#history li").evaluateAll((items) => items.map((item) => item.textContent.replace(/^[\d:. APM]+/, "")));
  await page.locator("#history li").nth(2).waitFor();
  assert.deepEqual(await history(), ["acquired team/job by second", "released team/job by first", "acquired team/job by first"]);
  await server.release("team/job", "second");
  await page.locator("#history li").nth(3).waitFor();
  await page.locator("#facts").getByText("free").waitFor();
});

scene("the feed can be narrowed, and leads to a lock's page", async (page, server) => {
  await page.locator('#connection[data-state="live"]').waitFor();
  await server.acquire("one", "anna");
  await server.acquire("two", "bert");
  await server.release("one", "anna");
  await page.locator("#events li").nth(2).waitFor();
  await page.getByLabel("Kind").selectOption("acquired");
  await page.waitForFunction(() => document.querySelectorAll("#events li").length === 2);
  await page.getByLabel("Name or owner").fill("bert");
  await page.waitForFunction(() => document.querySelectorAll("#events li").length === 1);
  await page.getByLabel("Kind").selectOption("forced");
  await page.getByText("Nothing yet.").waitFor();
  await page.getByLabel("Kind").selectOption("");
  await page.locator("#events").getByRole("link", { name: "two" }).click();
  await page.locator("#detail-title").getByText("two").waitFor();
});

scene("what is selected or focused stays while times run down", async (page, server) => {
  await server.acquire("a", "anna", 600);
  await server.acquire("b", "bert", 600);
  await row(page, "b").getByRole("link").focus();
  await page.evaluate(() => {
    document.querySelector("#rows tr").dataset.same = "yes";
    getSelection().selectAllChildren(document.querySelector("#rows tr").cells[1]);
  });
  const shown = await row(page, "a").textContent();
  await page.waitForFunction((before) => document.querySelector("#rows tr").textContent !== before, shown);
  assert.equal(await page.evaluate(() => document.querySelector("#rows tr").dataset.same), "yes");
  assert.equal(await page.evaluate(() => getSelection().toString()), "anna");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "b");
  // By keyboard alone to the lock's page and back.
  await page.keyboard.press("Enter");
  await page.locator("#detail-title").getByText("b", { exact: true }).waitFor();
  await page.getByRole("link", { name: "All locks" }).focus();
  await page.keyboard.press("Enter");
  await row(page, "a").waitFor();
});

test("a server that says nothing any more is lost, and charts have a gap", { timeout: 120_000 }, async () => {
  const server = await Server.start({ args: ["--store", "memory:"] });
  const page = await open(chrome, server.url);
  await server.acquire("a", "anna");
  await row(page, "a").waitFor();
  await page.locator("#charts").getByText("Live locks 1").waitFor();
  await page.clock.install();
  // A stream that begins now is watched by the clock that this test moves.
  await page.reload();
  await row(page, "a").waitFor();
  server.child.kill("SIGSTOP");
  await page.clock.fastForward(36_000);
  await page.getByText(/connection lost, showing state of \d/).waitFor();
  server.child.kill("SIGCONT");
  for (let n = 0; n < 100 && !(await page.locator('#connection[data-state="live"]').count()); n += 1) {
    await page.clock.fastForward(5_000);
    await page.waitForTimeout(50);
  }
  await page.locator('#connection[data-state="live"]').waitFor();
  assert.deepEqual(page.complaints, []);
  await page.context().close();
  await server.remove();
});

scene("filters and sorting", async (page, server) => {
  for (const [name, owner, ttl] of [["a/1", "x", 300], ["a/2", "y", 100], ["b/1", "x", 200]]) await server.acquire(name, owner, ttl);
  await row(page, "b/1").waitFor();
  const shown = () => page.locator("#rows tr td:first-child").allTextContents();
  await page.getByRole("button", { name: "Time left" }).click();
  await page.waitForFunction(() => document.querySelector("#rows td").textContent === "a/2");
  assert.deepEqual(await shown(), ["a/2", "b/1", "a/1"]);
  await page.getByLabel("Name begins with").fill("a/");
  await page.getByText("2 of 3").waitFor();
  await page.getByLabel("Owner", { exact: true }).fill("x");
  await page.getByText("1 of 3").waitFor();
  await page.getByLabel("Owner", { exact: true }).fill("nobody");
  await page.getByText("No lock matches").waitFor();
});

test("a restart is told, survived, and nothing stale is left", { timeout: 120_000 }, async () => {
  const server = await Server.start();
  const page = await open(chrome, server.url);
  await server.acquire("stays", "a");
  await server.acquire("goes", "a");
  await row(page, "goes").waitFor();
  await server.stop();
  await page.getByText(/connection lost, showing state of \d/).waitFor();
  await page.locator("#charts").getByText("Live locks not known").waitFor();
  await picture(page, "lost");
  const other = await Server.start({ folder: server.folder });
  await other.release("goes", "a");
  await other.stop();
  const again = await Server.start({ port: server.port, folder: server.folder });
  await page.locator('#connection[data-state="live"]').waitFor();
  await row(page, "goes").waitFor({ state: "detached" });
  await row(page, "stays").waitFor();
  assert.deepEqual(page.complaints, []);
  await page.context().close();
  await again.remove();
});

async function guarded() {
  const program = path.resolve(process.env.FERROLHO_PROGRAM ?? "target/debug/ferrolho");
  const made = (...args) => execFileSync(program, ["token", "new", "--allow", "*", ...args], { encoding: "utf8" }).split("\n");
  const [worker, workerLine] = made("--name", "app", "--read");
  const [admin, adminLine] = made("--name", "root", "--admin");
  const first = await Server.start({ args: ["--store", "memory:"] });
  await first.stop();
  await writeFile(path.join(first.folder, "tokens"), `${workerLine}\n${adminLine}\n`);
  const server = await Server.start({ folder: first.folder, args: ["--store", "memory:", "--tokens", "tokens"] });
  return Object.assign(server, { worker, admin });
}

scene(
  "a token is asked for, kept in the tab, and an administrator takes a lock away",
  async (page, server) => {
    const as = { Authorization: `Bearer ${server.worker}` };
    await server.acquire("stuck", "worker", 600, {}, as);
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Show locks" }).click();
    await page.getByText("no valid bearer token").waitFor();
    await picture(page, "login");
    await page.getByLabel("Token").fill(server.admin);
    await page.getByRole("button", { name: "Show locks" }).click();
    await row(page, "stuck").getByRole("link").click();
    await page.getByText("Takes stuck away from worker").waitFor();
    await page.getByLabel("Reason").fill("its host is gone");
    await page.getByRole("button", { name: "Force release" }).click();
    await page.locator("#facts").getByText("free").waitFor();
    await page.locator("#history").getByText("its host is gone").waitFor();
    assert.equal((await server.call("GET", "/locks/stuck", undefined, as)).status, 404);
    // Who may only look is not offered it.
    await server.acquire("stuck", "worker", 600, {}, as);
    await page.locator("#force").waitFor();
    await page.getByRole("button", { name: "Forget token" }).click();
    await page.getByLabel("Token").fill(server.worker);
    await page.getByRole("button", { name: "Show locks" }).click();
    await page.locator("#facts").getByText("worker").first().waitFor();
    assert.ok(!(await page.locator("#force").isVisible()));
    const elsewhere = await page.context().newPage();
    await elsewhere.goto(server.url);
    await elsewhere.getByLabel("Token").waitFor();
  },
  guarded,
);

test("a page on one server shows what comes through another", { timeout: 120_000 }, async () => {
  const database = await Postgres.start();
  const args = ["--store", database.url];
  const [here, there] = [await Server.start({ args }), await Server.start({ args })];
  const page = await open(chrome, here.url);
  await page.locator('#connection[data-state="live"]').waitFor();
  await there.acquire("team/job", "over-there", 600);
  await row(page, "team/job").getByText("over-there").waitFor();
  const waiting = here.acquire("team/job", "over-here", 600, { wait_seconds: 60 });
  await row(page, "team/job").locator("td").nth(4).getByText("1").waitFor();
  await there.release("team/job", "over-there");
  assert.equal((await waiting).body.acquired, true);
  await row(page, "team/job").getByText("over-here").waitFor();
  await there.acquire("short", "over-there", 1);
  await row(page, "short").waitFor();
  await row(page, "short").waitFor({ state: "detached" });
  await there.release("team/job", "over-here");
  await page.getByText("Nobody holds a lock").waitFor();
  assert.deepEqual(page.complaints, []);
  await page.context().close();
  await Promise.all([here.remove(), there.remove()]);
  await database.remove();
});

scene("fifty thousand locks show at once, a page at a time", async (page, server) => {
  const sets = [];
  for (let set = 0; set < 1563; set += 1) {
    const resources = Array.from({ length: 32 }, (_, n) => `job/${String(set * 32 + n).padStart(6, "0")}`);
    sets.push({ resources, owner: `worker-${set % 9}`, ttl_seconds: 3600 });
  }
  for (let at = 0; at < sets.length; at += 64) {
    await Promise.all(sets.slice(at, at + 64).map((set) => server.call("POST", "/locks", set)));
  }
  // The first rows are there after the first of some fifty pages: the others are held back until then.
  let goOn;
  const shown = new Promise((done) => {
    goOn = done;
  });
  await page.route(/cursor=/, async (route) => {
    await shown;
    await route.continue();
  });
  await page.reload();
  await row(page, "job/000000").waitFor();
  goOn();
  await page.locator("#count").getByText("50016", { exact: true }).waitFor();
  assert.equal(await page.locator("#rows tr").count(), 200);
  await page.getByRole("button", { name: "Show more" }).click();
  await row(page, "job/000399").waitFor();
  await page.getByLabel("Name begins with").fill("job/04999");
  await page.getByText("10 of 50016").waitFor();
});

test("dark, and on a telephone", { timeout: 120_000 }, async () => {
  const server = await Server.start({ args: ["--store", "memory:"] });
  for (let n = 0; n < 12; n += 1) await server.acquire(`team/job-${n}`, `worker-${n}`, 60 * (n + 1));
  for (const [name, options] of [
    ["dark", { colorScheme: "dark" }],
    ["light", { colorScheme: "light" }],
    ["telephone", { viewport: { width: 390, height: 800 }, colorScheme: "light" }],
    ["narrow", { viewport: { width: 320, height: 700 }, colorScheme: "dark" }],
  ]) {
    const page = await open(chrome, server.url, options);
    await row(page, "team/job-0").waitFor();
    await server.call("POST", "/locks/team%2Fjob-1/renew", { owner: "worker-1", ttl_seconds: 300 });
    await server.acquire("team/job-2", "late-comer", 60);
    await server.release("team/job-3", "worker-3");
    await server.acquire("team/job-3", "worker-3", 240);
    await page.locator("#charts").getByText("Live locks 12").waitFor();
    await page.locator('#events [data-kind="released"]').first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= page.viewportSize().width, `${name}: the page is ${width} wide`);
    await picture(page, name);
    assert.deepEqual(page.complaints, []);
    await page.context().close();
  }
  await server.remove();
});
