// Looks at a page in headless Chromium: axe's rules, its width at 390 and 1280 px, light and dark, and where it asks.
//
//   node look.mjs URL SECONDS [FOLDER] > FOUND.json
//
// FOUND: {"violations": [..], "wider": [..], "elsewhere": [..], "errors": [..], "state": ..}; FOLDER gets pictures.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [url, seconds, folder] = process.argv.slice(2);
const found = { violations: [], wider: [], elsewhere: [], errors: [] };
const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
const tab = await browser.newPage();
tab.on("request", (request) => {
  const { protocol, hostname } = new URL(request.url());
  if (protocol !== "data:" && protocol !== "blob:" && hostname !== "127.0.0.1") found.elsewhere.push(request.url());
});
tab.on("pageerror", (error) => found.errors.push(error.message));
await tab.setViewport({ width: 1280, height: 900 });
await tab.goto(url, { waitUntil: "load" });
await new Promise((done) => setTimeout(done, 1000 * Number(seconds)));
for (const value of ["light", "dark"]) {
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
  for (const width of [390, 1280]) {
    await tab.setViewport({ width, height: 900 });
    await new Promise((done) => setTimeout(done, 500));
    const wider = await tab.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wider > 0) found.wider.push([value, width, wider]);
    await tab.evaluate(axe);
    for (const each of (await tab.evaluate(() => axe.run())).violations) {
      found.violations.push([value, width, each.id, each.nodes.map((node) => node.html.slice(0, 120))]);
    }
    if (folder) await tab.screenshot({ path: `${folder}/${value}-${width}.png`, fullPage: true });
  }
}
found.state = await tab.evaluate(() => document.documentElement.dataset.state);
await browser.close();
console.log(JSON.stringify(found));
