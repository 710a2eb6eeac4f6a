// SPDX-License-Identifier: BSD-2-Clause
/*
 * Opens a page in headless Chromium, uses it as people do, and says what it saw as
 * JSON on standard output; what is right, tests/html/run decides.
 *
 *     node page.cjs BROWSER PAGE SHOTS [look]
 *
 * SHOTS: a folder for screenshots and the print. look: no more than open, read and
 * take pictures.
 */
"use strict";
const { chromium } = require("playwright-core");
const path = require("path");

const [, , browserPath, file, shots, mode] = process.argv;
const out = { requests: [], console: [], errors: [] };

function figures() {
	return [...document.querySelectorAll("[data-path]")].map((e) => ({
		path: e.dataset.path, unit: e.dataset.unit || null, report: e.dataset.report || null,
		unknown: e.classList.contains("unknown"), text: e.textContent,
	}));
}
function cells(id, n) {
	return [...document.querySelectorAll("#" + id + " tbody tr")].map((r) => r.children[n].textContent);
}
const view = (page) => page.evaluate(() => {
	const c = document.getElementById("timeline-canvas");
	return [+c.dataset.begin, +c.dataset.end, document.getElementById("range").textContent];
});
const settle = (page) => page.evaluate(() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f))));

async function open(context) {
	const page = await context.newPage();
	page.on("request", (r) => out.requests.push(r.url()));
	page.on("console", (m) => out.console.push(m.type() + ": " + m.text()));
	page.on("pageerror", (e) => out.errors.push(String(e)));
	await page.goto("file://" + path.resolve(file));
	await page.waitForSelector("html[data-ready]", { timeout: 30000 });
	await page.evaluate(() => { document.documentElement.style.scrollBehavior = "auto"; });
	return page;
}

async function timeline(page) {
	const t = {}, canvas = await page.$("#timeline-canvas");
	if (!canvas) return null;
	await canvas.evaluate((e) => e.scrollIntoView({ block: "center" }));
	await settle(page);
	const box = await canvas.boundingBox(), x = box.x + box.width / 2, y = box.y + 60;
	t.all = await view(page);
	/* the page scrolls under a wheel that nobody aimed at the timeline */
	await page.evaluate(() => document.activeElement.blur());
	await page.mouse.move(x, y);
	await page.mouse.wheel(0, -120);
	await settle(page);
	t.unfocused = await view(page);
	await canvas.evaluate((e) => e.scrollIntoView({ block: "center" }));
	await page.mouse.click(x, y);
	const steps = { wheel_in: () => page.mouse.wheel(0, -400), wheel_in2: () => page.mouse.wheel(0, -400), wheel_out: () => page.mouse.wheel(0, 200),
		wheel_side: () => page.mouse.wheel(150, 0),
		drag: async () => { await page.mouse.down(); await page.mouse.move(x - 40, y, { steps: 3 }); await page.mouse.move(x - 120, y, { steps: 4 }); await page.mouse.up(); },
		right: () => page.keyboard.press("ArrowRight"), left: () => page.keyboard.press("ArrowLeft"), plus: () => page.keyboard.press("+"), minus: () => page.keyboard.press("-"),
		double: () => page.mouse.dblclick(x, y), end: () => page.keyboard.press("End"), home: () => page.keyboard.press("Home"), zero: () => page.keyboard.press("0"),
		button: () => page.click("button[aria-label='Zoom in']"), all_again: () => page.click("button[aria-label='Show all']"),
		select: async () => { await page.keyboard.down("Shift"); await page.mouse.move(x - 100, y); await page.mouse.down(); await page.mouse.move(x + 100, y, { steps: 5 }); await page.mouse.up(); await page.keyboard.up("Shift"); } };
	for (const k in steps) {
		await page.mouse.move(x, y);
		await steps[k]();
		await settle(page);
		t[k] = await view(page);
	}
	t.width = box.width;
	await canvas.focus();
	await page.keyboard.press("0");
	await page.keyboard.press("ArrowDown");
	await settle(page);
	t.lane = await page.textContent("#readout");
	t.waits = [];
	for (let i = 0; i < 5; i++) {
		await page.keyboard.press("n");
		await settle(page);
		t.waits.push(await page.textContent("#readout"));
	}
	/* how long a frame takes, with all of it in view and while it moves */
	t.frame_ms = await page.evaluate(async () => {
		const c = document.getElementById("timeline-canvas"), times = [];
		for (let i = 0; i < 20; i++) {
			const a = performance.now();
			c.dispatchEvent(new KeyboardEvent("keydown", { key: i % 2 ? "-" : "+" }));
			await new Promise((f) => requestAnimationFrame(() => setTimeout(f, 0)));
			times.push(performance.now() - a);
		}
		return times.sort((a, b) => a - b)[10];
	});
	return t;
}

/* The flame graph: what it shows of each group, enlarged, by keys; and the heat map. */
async function flame(page) {
	const graph = await page.$("#flame"), f = { groups: {} };
	if (!graph) return null;
	const frames = () => page.$$eval("#flame .frame", (l) => l.map((e) => ({ text: e.textContent, title: e.title, left: e.offsetLeft, width: e.offsetWidth, top: e.offsetTop, ours: e.classList.contains("ours") })));
	const press = (label) => page.click(`#stacks button:text-is("${label}")`);
	const who = await page.$$eval("#stacks .tools button", (l) => l.map((e) => e.textContent).slice(0, -4));
	const heat = () => page.$$eval("#heat-table tbody tr", (l) => l.map((r) => [...r.children].map((e) => e.textContent)));
	for (const w of who) {
		f.groups[w] = {};
		for (const state of ["Running", "Asleep"]) {
			await press(w);
			await press(state);
			f.groups[w][state] = await frames();
		}
		f.groups[w].heat = await heat();
	}
	await press(who.includes("Workers") ? "Workers" : who[0]);
	await press("Running");
	f.all = await frames();
	f.width = await graph.evaluate((e) => e.clientWidth);
	const i = f.all.findIndex((e, k) => k > 0 && e.width < f.width / 2 && e.width > 30);
	const at = (k) => page.$(`#flame .frame:nth-child(${k + 1})`);
	if (i > 0) {
		f.small = f.all[i];
		await (await at(i)).click();
		f.large = (await frames()).find((e) => e.title === f.small.title && e.top === f.small.top || e.title === f.small.title);
		// else the browser tells of what comes to lie below the pointer, sooner or later
		await page.mouse.move(0, 0);
		await graph.focus();
		await page.keyboard.press("Escape");
		f.back = await frames();
		f.said = [];
		for (const key of ["ArrowUp", "ArrowUp", "ArrowDown", "ArrowRight"]) {
			await page.keyboard.press(key);
			f.said.push(await page.$eval("#stacks .readout", (e) => e.textContent));
		}
		await page.keyboard.press("Enter");
		f.entered = (await frames()).filter((e) => e.width >= f.width - 2).length;
		await page.keyboard.press("Escape");
	}
	await press("By function");
	f.functions = await frames();
	await press("By line");
	return f;
}

async function keyboard(page) {
	const seen = [];
	await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
	for (let i = 0; i < 60; i++) {
		await page.keyboard.press("Tab");
		seen.push(await page.evaluate(() => {
			const e = document.activeElement, s = getComputedStyle(e);
			return { name: e.id || e.getAttribute("aria-label") || e.textContent.slice(0, 30), body: e === document.body,
				outlined: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 };
		}));
		if (seen[i].name === "timeline-canvas") break;
	}
	return seen;
}

async function sorting(page, id) {
	const heads = await page.$$eval("#" + id + " th", (l) => l.map((e) => e.textContent));
	const r = {};
	for (let i = 0; i < heads.length; i++) {
		const b = await page.$(`#${id} th:nth-child(${i + 1}) button`);
		if (!b) continue;
		r[heads[i]] = [];
		for (let k = 0; k < 2; k++) {
			await b.click();
			r[heads[i]].push({ order: await page.getAttribute(`#${id} th:nth-child(${i + 1})`, "aria-sort"), cells: await page.evaluate(([a, n]) =>
				[...document.querySelectorAll("#" + a + " tbody tr")].map((e) => e.children[n].textContent), [id, i]) });
		}
	}
	return r;
}

/* A link to a verdict, and one to a part of the timeline: where does the page open? */
async function links(context, id, part) {
	const page = await context.newPage(), r = {};
	for (const to of [id, part]) {
		await page.goto("about:blank");
		await page.goto("file://" + path.resolve(file) + "#" + to);
		await page.waitForSelector("html[data-ready]", { timeout: 30000 });
		await settle(page);
		await page.waitForTimeout(400); /* it may scroll smoothly */
		r[to] = await page.evaluate((i) => {
			const e = document.querySelector(`article.verdict[data-id="${i}"]`), c = document.getElementById("timeline");
			return { card: e.getBoundingClientRect().top, timeline: c.getBoundingClientRect().top, height: innerHeight };
		}, id);
		r[to].view = await view(page);
	}
	await page.close();
	return r;
}

async function main() {
	const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--force-color-profile=srgb"] });
	try {
		const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", offline: false });
		const began = Date.now(), page = await open(context);
		out.open_ms = Date.now() - began;
		out.drawn_ms = +await page.evaluate(() => document.documentElement.dataset.ready);
		out.title = await page.title();
		out.plots = await page.$$eval(".plot", (l) => l.map((e) => ({ id: e.id, canvases: e.querySelectorAll("canvas").length, tables: e.querySelectorAll("details").length })));
		out.verdicts = await page.$$eval("article.verdict", (l) => l.map((e) => ({ id: e.dataset.id, depth: e.closest(".children") ? 1 : 0,
			title: e.querySelector(".title").textContent, parent: e.parentElement.closest("article") ? e.parentElement.closest("article").dataset.id : null })));
		for (const b of await page.$$("main button")) if (/^Show all \d/.test(await b.textContent())) await b.click();
		out.figures = await page.evaluate(figures);
		out.tables = await page.$$eval("table[id]", (l) => l.map((e) => ({ id: e.id, rows: e.querySelectorAll("tbody tr").length })));
		out.limits = await page.$$eval("ol.limits li", (l) => l.map((e) => e.textContent));
		out.text = await page.evaluate(() => document.body.innerText);
		out.odd = await page.evaluate(() => ({ pwned: String(window.pwned), scripts: document.querySelectorAll("main script, main img, main iframe, main link, main style").length }));
		const wide = async () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
		out.flame = await flame(page);
		if (mode !== "look") {
			out.timeline = await timeline(page);
			out.links = await links(context, out.verdicts[out.verdicts.length - 1].id, "0.25s..0.5s");
			if (await page.$("#operations-table")) out.sorted = await sorting(page, "operations-table");
			out.keyboard = await keyboard(page);
			const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
			out.theme = [await back()];
			await page.click("#theme");
			out.theme.push(await back());
			await page.click("#theme");
			out.theme.push(await back());
		}
		out.overflow = {};
		for (const scheme of ["light", "dark"]) {
			for (const width of [1280, 390]) {
				await page.emulateMedia({ colorScheme: scheme });
				await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
				await page.evaluate(() => window.scrollTo(0, 0));
				await settle(page);
				await page.waitForTimeout(120);
				out.overflow[scheme + width] = await wide();
				await page.screenshot({ path: path.join(shots, `${scheme}-${width}.png`) });
				for (const part of ["timeline", "stacks"]) {
					const at = await page.$("#" + part);
					if (!at) continue;
					await at.evaluate((e) => e.scrollIntoView());
					await settle(page);
					await page.screenshot({ path: path.join(shots, `${scheme}-${width}-${part}.png`) });
				}
			}
		}
		await page.setViewportSize({ width: 1280, height: 900 });
		await page.pdf({ path: path.join(shots, "print.pdf"), format: "A4", printBackground: false });
	} finally {
		await browser.close();
	}
	process.stdout.write(JSON.stringify(out));
}
main().catch((e) => { console.error(e.stack || e); process.exit(1); });
