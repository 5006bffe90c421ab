// The dashboard does not lie: broken lists, silence, wrong clocks, floods; and it serves those who see or point little.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Server, browser, open, picture, row } from "./page.mjs";

let chrome;
before(async () => {
  chrome = await browser();
});
after(() => chrome.close());

function scene(name, act, options = {}) {
  test(name, { timeout: 120_000 }, async () => {
    const server = await Server.start({ args: ["--store", "memory:"] });
    const page = await open(chrome, server.url, options);
    try {
      await page.locator('#connection[data-state="live"]').waitFor();
      await act(page, server);
      assert.deepEqual(page.complaints, []);
    } finally {
      await page.context().close();
      await server.remove();
    }
  });
}

// The next event of a server, as its stream has it: with an id that the server will know again.
async function nextEvent(server, act) {
  const response = await fetch(`${server.url}/events`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  await act();
  let text = "";
  while (!/^id: .*\ndata: .*\n\n/m.test(text)) text += (await reader.read()).value;
  await reader.cancel();
  return text;
}

scene("a list that broke off is asked for again, though events were heard meanwhile", async (page, server) => {
  await server.acquire("b", "bert");
  const event = await nextEvent(server, () => server.acquire("a", "anna"));
  let lists = 0;
  let streams = 0;
  // The first stream tells of one event and ends, and the first list never comes.
  await page.route("**/locks?*", (route) => (++lists === 1 ? route.abort() : route.continue()));
  await page.route("**/events", (route) => {
    const first = { status: 200, contentType: "text/event-stream", body: event };
    return ++streams === 1 ? route.fulfill(first) : route.continue();
  });
  await page.reload();
  await row(page, "b").waitFor({ timeout: 10_000 });
  await row(page, "a").waitFor();
  await page.locator('#connection[data-state="live"]').waitFor();
});

scene("the time of a lost state is when the server was last heard, not when that was noticed", async (page, server) => {
  await server.acquire("a", "anna");
  await page.clock.install();
  // A stream that begins now is watched by the clock that this test moves.
  await page.reload();
  await row(page, "a").waitFor();
  await page.locator('#connection[data-state="live"]').waitFor();
  server.child.kill("SIGSTOP");
  const stopped = await page.evaluate(() => Date.now());
  await page.clock.fastForward(36_000);
  const told = page.getByText(/connection lost, showing state of \d/);
  await told.waitFor();
  const shown = (await told.textContent()).match(/state of (.*)$/)[1];
  const possible = await page.evaluate((end) => {
    // Each second of the half minute before the server stopped.
    return Array.from({ length: 30 }, (_, n) => new Date(end - n * 1000).toLocaleTimeString());
  }, stopped);
  assert.ok(possible.includes(shown), `${shown} is not one of ${possible.at(-1)} to ${possible[0]}`);
  server.child.kill("SIGCONT");
});

for (const [name, hours] of [["behind", -5], ["ahead", 5]]) {
  test(`time left is the server's, also where the browser's clock is ${name}`, { timeout: 120_000 }, async () => {
    const server = await Server.start({ args: ["--store", "memory:"] });
    const page = await open(chrome, server.url);
    await page.clock.install({ time: Date.now() + hours * 3_600_000 });
    await page.reload();
    await server.acquire("a", "anna", 7200);
    await row(page, "a").getByText(/^(1 h 59|2 h 0) min$/).waitFor();
    assert.ok(!(await page.locator("#rows tr.over").count()));
    await page.context().close();
    await server.remove();
  });
}

scene("a flood of renewals does not hold the page up, and is not kept", async (page, server) => {
  const names = Array.from({ length: 50 }, (_, n) => `job/${n}`);
  for (const name of names) await server.acquire(name, "w");
  await row(page, "job/49").waitFor();
  // Counts how often the table is drawn while a few thousand events arrive.
  await page.evaluate(() => {
    window.draws = 0;
    new MutationObserver(() => (window.draws += 1)).observe(document.querySelector("#events"), { childList: true });
    window.began = performance.now();
  });
  for (let round = 0; round < 40; round += 1) {
    await Promise.all(names.map((name) => server.call("POST", `/locks/${encodeURIComponent(name)}/renew`, { owner: "w", ttl_seconds: 600 + round })));
  }
  await server.acquire("last", "w");
  await row(page, "last").waitFor();
  const { draws, elapsed } = await page.evaluate(() => ({ draws: window.draws, elapsed: performance.now() - window.began }));
  assert.ok(draws <= elapsed / 250 + 2, `${draws} draws in ${elapsed} ms`);
  assert.equal(await page.locator("#events li").count(), 50);
});

scene("the keyboard goes along to a lock's page and back", async (page, server) => {
  await server.acquire("a", "anna");
  await row(page, "a").waitFor();
  await row(page, "a").getByRole("link").focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.id === "detail-title");
  assert.equal(await page.title(), "a · ferrolho");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "All locks");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.textContent === "a");
  assert.equal(await page.title(), "Locks · ferrolho");
});

for (const colorScheme of ["light", "dark"]) {
  scene(`text stands out from what is behind it (${colorScheme})`, async (page, server) => {
    await server.acquire("a", "anna");
    await server.release("a", "anna");
    await server.acquire("b", "bert");
    await row(page, "b").waitFor();
    await page.locator("#events [data-kind=released]").waitFor();
    const weak = await page.evaluate(weakTexts);
    assert.deepEqual(weak, []);
    await page.locator("#rows tr").first().evaluate((tr) => (tr.className = "over"));
    assert.deepEqual(await page.evaluate(weakTexts), []);
    await picture(page, `contrast-${colorScheme}`);
  }, { colorScheme });
}

// In the page: texts with less than the contrast that WCAG 2.2 asks for at level AA (4.5 to 1).
function weakTexts() {
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  let looked = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    looked += 1;
    const [one, other] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    if (ratio < 4.5 || opacity < 1) found.push(`${texts.currentNode.data}: ${ratio.toFixed(2)}`);
  }
  return looked > 20 ? found : [`only ${looked} texts`];
}
