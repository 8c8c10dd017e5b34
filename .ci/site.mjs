// Looks at the built site in headless Chromium: every link and every anchor, every page at 390 and 1280 px, and axe's
// rules of WCAG 2 A and AA, light and dark, on a page of each kind, with UE_RL_CI_WHOLE on every page: what breaks a
// rule is the theme, or a kind of block, far more often than one page. node .ci/site.mjs SITE [--shots FOLDER PAGE ..];
// needs `chromium`, and axe-core and puppeteer-core beside NODE_PATH.
import {createRequire} from "node:module";
import {mkdirSync, readdirSync, readFileSync} from "node:fs";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const load = createRequire(join(process.env.NODE_PATH ?? "node_modules", "x.js"));
const puppeteer = (await import(pathToFileURL(load.resolve("puppeteer-core")))).default;
const axe = readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");
const [site, flag, folder, ...named] = process.argv.slice(2);
const shots = flag === "--shots";
const pages = readdirSync(site, {recursive: true}).filter((name) => name.endsWith(".html") && name !== "404.html").sort();
const chosen = shots && named.length ? named : pages;
const widths = [390, 1280];
// tabs and code, tables, a drawing, pictures and films, what mkdocstrings writes
const kinds = ["index.html", "quickstart.html", "cli.html", "architecture.html", "gallery.html", "api/training.html"];
const judged = process.env.UE_RL_CI_WHOLE ? pages : kinds;
const ids = new Map(), links = [], mistakes = [];

// A mouse and a keyboard, as on a desk: without one the theme does not let keys scroll code.
const mouse = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4";
const args = ["--no-sandbox", "--disable-gpu", mouse];
const browser = await puppeteer.launch({executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args});
const tab = await browser.newPage();
if (shots) mkdirSync(folder, {recursive: true});
for (const name of judged) if (!pages.includes(name)) mistakes.push(`${name}: there is no such page to judge`);
for (const name of chosen) {
  await tab.setViewport({width: widths[0], height: 900});
  await tab.goto(pathToFileURL(resolve(site, name)).href, {waitUntil: "load"});
  for (const width of widths) {
    await tab.setViewport({width, height: 900});
    if (shots) {
      await tab.screenshot({path: join(folder, `${name.replaceAll("/", "_")}-${width}.png`), fullPage: true});
      continue;
    }
    const wide = await tab.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wide > 0) mistakes.push(`${name}: ${wide} px wider than a window of ${width} px`);
  }
  if (shots) continue;
  const seen = await tab.evaluate(() => ({
    ids: [...document.querySelectorAll("[id]")].map((each) => each.id),
    links: [...document.querySelectorAll("a[href], img[src]")].map((each) => each.href ?? each.src),
  }));
  ids.set(pathToFileURL(resolve(site, name)).href, new Set(seen.ids));
  for (const link of seen.links) links.push([name, link]);
  // source/: files of the repository, shown as they are
  if (name.startsWith("source/") || !judged.includes(name)) continue;
  await tab.evaluate(axe);
  await tab.addStyleTag({content: "* { transition: none !important; animation: none !important; }"});
  for (const scheme of ["default", "slate"]) {
    await tab.evaluate((value) => document.body.setAttribute("data-md-color-scheme", value), scheme);
    const found = await tab.evaluate(() => axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}));
    for (const each of found.violations)
      for (const node of each.nodes) {
        const why = (node.any[0] ?? node.all[0] ?? node.none[0]).message;
        mistakes.push(`${name} (${scheme}): ${each.id}: ${why}: ${node.html.replace(/\s+/g, " ").slice(0, 120)}`);
      }
  }
}
await browser.close();
if (!shots) {
  const {existsSync} = await import("node:fs");
  for (const [name, link] of links) {
    const url = new URL(link);
    if (url.protocol !== "file:") continue;
    const anchor = decodeURIComponent(url.hash.slice(1));
    url.hash = url.search = "";
    if (!existsSync(url)) mistakes.push(`${name}: ${link} leads nowhere`);
    else if (anchor && ids.has(url.href) && !ids.get(url.href).has(anchor)) mistakes.push(`${name}: ${link}: no such anchor`);
  }
  console.log(`${pages.length} pages, ${links.length} links, ${mistakes.length} mistakes`);
  for (const mistake of [...new Set(mistakes)]) console.log(mistake);
  process.exit(mistakes.length ? 1 : 0);
}
