/* What all of the page uses: elements, numbers for people, colours. Every text
 * that came from a recording goes in as text, never as markup. */

function data(id) {
	const e = document.getElementById(id);
	return e ? JSON.parse(e.textContent) : null;
}

/* Control, invisible and reordering characters are shown by their number. */
const ODD = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
function clean(s) {
	return String(s).replace(ODD, (c) => "\\u{" + c.charCodeAt(0).toString(16) + "}");
}

function h(tag, attrs, ...children) {
	const e = document.createElement(tag);
	for (const k in attrs || {}) {
		const v = attrs[k];
		if (v === null || v === undefined || v === false) continue;
		if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
		else if (k === "style") Object.assign(e.style, v);
		else e.setAttribute(k, v === true ? "" : v);
	}
	for (const c of children.flat(9)) {
		if (c === null || c === undefined || c === false) continue;
		e.append(c instanceof Node ? c : clean(c));
	}
	return e;
}

const known = (v) => v !== null && v !== undefined && (typeof v !== "number" || isFinite(v));

/* ---- numbers --------------------------------------------------------------- */

function digits(v, n) { return v.toLocaleString("en-US", { minimumFractionDigits: n, maximumFractionDigits: n }); }
/* Three figures, or all before the point. */
function three(v) {
	const a = Math.abs(v);
	return digits(v, a >= 99.95 || a === 0 ? 0 : a >= 9.995 ? 1 : a >= .9995 ? 2 : 3);
}
const count = (v) => digits(v, 0);
const percent = (v) => digits(v * 100, Math.abs(v) >= .0995 || v === 0 ? 0 : Math.abs(v) >= .00095 ? 1 : 2) + " %";
function seconds(v) {
	const a = Math.abs(v);
	if (v === 0) return "0 s";
	if (a < 999.5e-6) return three(v * 1e6) + " µs";
	if (a < .9995) return three(v * 1e3) + " ms";
	return a < 600 ? three(v) + " s" : digits(v / 60, 1) + " min";
}
const millis = (v) => seconds(v / 1e3), micros = (v) => seconds(v / 1e6);
function bytes(v) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let i = 0;
	for (; Math.abs(v) >= 1023.5 && i < 5; i++) v /= 1024;
	return (i ? three(v) : count(v)) + " " + units[i];
}
const times = (v) => digits(v, 2) + "x";
const FORMATS = {
	share: percent, s: seconds, ms: millis, us: micros, bytes: bytes, count: (v) => Number.isInteger(v) ? count(v) : three(v),
	ratio: times, per_second: (v) => three(v) + "/s", plain: three, bytes_s: (v) => bytes(v) + "/s", "bytes/s": (v) => bytes(v) + "/s",
};
const formatOf = (unit) => FORMATS[unit] || ((v) => three(v) + (unit ? " " + clean(unit) : ""));

/* A name of the report's, for people. */
const WORDS = {
	cpu: "CPU", gpu_wait: "GPU wait", data_wait: "data wait", ipc: "IPC", run_queue: "run queue",
	page_fault: "page fault", worker_idle: "no work requested", prefetch_full: "prefetch full",
	no_demand: "no demand", other_host: "other host work", disk_write: "disk write", pipe_full: "pipe full",
	gpu_busy: "GPU busy", gpu_starved: "GPU idle, waiting for data",
	gpu_starved_likely: "GPU probably idle, waiting for data", gpu_idle: "GPU idle otherwise", gpu_idle_likely: "GPU probably idle otherwise",
	futex: "lock or futex", socket: "socket", pipe: "pipe", nothing: "not known", h2d: "to the GPU",
};
const word = (s) => WORDS[s] || clean(s).replace(/_/g, " ");

/* ---- what is not known -------------------------------------------------------- */

let LIMITS = [];
let SHOWN; /* of a list of causes, until all are asked for */
/* Which of the limits says why: the one whose name goes with the figure's. */
function limitOf(path) {
	const plain = path.replace(/\.\d+/g, "");
	let best = -1, score = 0;
	LIMITS.forEach((l, i) => {
		const w = l.what || "";
		if ((plain === w || plain.startsWith(w + ".") || w.startsWith(plain + ".")) && w.length > score) {
			best = i;
			score = w.length;
		}
	});
	return best;
}
function unknown(path) {
	const i = path ? limitOf(path) : -1;
	return h("span", { class: "unknown", "data-path": path, title: i >= 0 ? clean(LIMITS[i].reason) : null }, "unknown",
		i >= 0 && h("a", { href: "#limit-" + (i + 1), "aria-label": "why: limit " + (i + 1) }, "[" + (i + 1) + "]"));
}
/* A figure of the report: where it stands there, and how it is shown. */
function fig(path, unit, root) {
	let v = root || D;
	for (const k of path.split(".")) v = known(v) ? v[k] : null;
	if (!known(v)) return unknown(path);
	return h("span", { "data-path": path, "data-unit": unit }, formatOf(unit)(v));
}
const text = (s, cls) => h("span", { class: "text " + (cls || "") }, s);

/* ---- colours: Okabe and Ito's, each with a pattern ----------------------------- */

const GREEN = "#009e73", YELLOW = "#f0e442", RED = "#d55e00", PURPLE = "#cc79a7", BLUE = "#0072b2",
	ORANGE = "#e69f00", SKY = "#56b4e9", GREY = "#9aa3ad", PALE = "#c9cfd6", DARK = "#5d6670";
/* colour, pattern: / \ - | x . or none */
const LOOKS = {
	running: [GREEN, ""], cpu: [GREEN, "x"], gpu_busy: [GREEN, ""], compute: [GREEN, ""],
	run_queue: [YELLOW, "/"], throttle: [YELLOW, "x"],
	disk: [RED, "-"], disk_write: [RED, "x"], checkpoint: [RED, "x"], data_wait: [RED, "\\"],
	gpu_starved: [RED, "\\"], gpu_starved_likely: [RED, "."],
	page_fault: [PURPLE, "x"], network: [BLUE, "."], socket: [BLUE, "."], collective: [BLUE, "|"],
	lock: [ORANGE, "|"], futex: [ORANGE, "|"], sync: [ORANGE, "/"], launch: [PURPLE, "|"],
	ipc: [SKY, "\\"], pipe: [SKY, "\\"], pipe_full: [SKY, "x"], transfer: [SKY, "-"],
	gpu_wait: [GREEN, "/"], worker_idle: [PALE, ""], prefetch_full: [PALE, "/"], compile: [PURPLE, "-"],
	gpu_idle: [GREY, ""], gpu_idle_likely: [GREY, "."], sleep: [PALE, "."], poll: [PALE, ""],
	blocked: [GREY, "|"], stopped: [DARK, "x"], unknown: [DARK, "."], other: [GREY, ""], other_host: [DARK, "|"],
	no_demand: [PALE, "-"], step_even: ["#8d99a6", ""], step_odd: ["#b9c2cc", ""],
};
const look = (name) => LOOKS[name] || [GREY, ""];
function cssLook(name) {
	const [c, p] = look(name), d = "rgba(0,0,0,.34) 0 1.5px,transparent 1.5px 6px";
	const g = {
		"/": `repeating-linear-gradient(135deg,${d})`, "\\": `repeating-linear-gradient(45deg,${d})`,
		"-": `repeating-linear-gradient(0deg,${d})`, "|": `repeating-linear-gradient(90deg,${d})`,
		"x": `repeating-linear-gradient(135deg,${d}),repeating-linear-gradient(45deg,${d})`,
		".": "radial-gradient(rgba(0,0,0,.5) 1.1px,transparent 1.4px) 0 0/6px 6px",
	}[p];
	return g ? `${g},linear-gradient(${c},${c})` : c;
}
const swatch = (name) => h("i", { class: "swatch", style: { background: cssLook(name) }, "aria-hidden": "true" });
const patterns = new Map();
function fillOf(ctx, name) {
	const ratio = window.devicePixelRatio || 1, key = name + ratio;
	if (patterns.has(key)) return patterns.get(key);
	const [c, p] = look(name), n = Math.round(6 * ratio), t = document.createElement("canvas"), g = t.getContext("2d");
	t.width = t.height = n;
	g.fillStyle = c;
	g.fillRect(0, 0, n, n);
	g.strokeStyle = g.fillStyle = "rgba(0,0,0,.34)";
	g.lineWidth = 1.3 * ratio;
	g.beginPath();
	if (p === "/" || p === "x") for (const o of [-n, 0, n]) { g.moveTo(o, n); g.lineTo(o + n, 0); }
	if (p === "\\" || p === "x") for (const o of [-n, 0, n]) { g.moveTo(o, 0); g.lineTo(o + n, n); }
	if (p === "-") { g.moveTo(0, n / 2); g.lineTo(n, n / 2); }
	if (p === "|") { g.moveTo(n / 2, 0); g.lineTo(n / 2, n); }
	g.stroke();
	if (p === ".") { g.fillStyle = "rgba(0,0,0,.5)"; g.fillRect(n / 3, n / 3, 1.7 * ratio, 1.7 * ratio); }
	const f = p ? ctx.createPattern(t, "repeat") : c;
	if (p) f.setTransform(new DOMMatrix().scale(1 / ratio));
	patterns.set(key, f);
	return f;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Parts of a whole, one behind the other; what is not known takes no place. */
function stack(parts, total, big) {
	const said = parts.filter((p) => p.v > 0).map((p) => p.label + " " + percent(p.v / total)).join(", ");
	return h("div", { class: "stack" + (big ? " big" : ""), role: "img", "aria-label": said, title: said },
		parts.filter((p) => p.v > 0).map((p) => h("i", { style: { width: 100 * p.v / total + "%", background: cssLook(p.look) } })));
}
const legend = (items) => h("ul", { class: "legend" }, items.map(([name, label]) => h("li", {}, swatch(name), label || word(name))));

/* ---- tables ------------------------------------------------------------------- */

/* cols: { name, unit, get(row) -> value, show(row), text, path(row index) };
 * sortable by every column, unknown last. */
function table(cols, rows, opts) {
	opts = opts || {};
	const body = h("tbody"), heads = [];
	const order = rows.map((r, i) => [r, i]);
	const limit = opts.first || rows.length;
	let all = rows.length <= limit;
	function cell(c, row, i) {
		const v = c.get(row);
		const path = c.path && opts.path ? opts.path + "." + i + "." + c.path : null;
		const inner = c.show ? c.show(row, i) : !known(v) ? unknown(path || c.why) : c.text ? text(v, c.mono && "mono") :
			h("span", path ? { "data-path": path, "data-unit": c.unit } : {}, formatOf(c.unit)(v));
		return h("td", { class: (c.text ? "t " : "") + (c.wide ? "w" : "") }, inner);
	}
	function fill() {
		body.replaceChildren(...order.slice(0, all ? rows.length : limit).map(([r, i]) => h("tr", {}, cols.map((c) => cell(c, r, i)))));
	}
	function sort(c, th) {
		const up = th.getAttribute("aria-sort") ? th.getAttribute("aria-sort") === "descending" : !!c.text;
		heads.forEach((t) => t.removeAttribute("aria-sort"));
		th.setAttribute("aria-sort", up ? "ascending" : "descending");
		order.sort(([a, i], [b, j]) => {
			const x = c.get(a), y = c.get(b);
			if (!known(x) || !known(y)) return known(y) - known(x) || i - j;
			const d = typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
			return (up ? d : -d) || i - j;
		});
		fill();
	}
	for (const c of cols) {
		const th = h("th", { scope: "col", class: c.text ? "t" : null });
		th.append(c.fixed ? c.name : h("button", { type: "button", onclick: () => sort(c, th) }, c.name));
		heads.push(th);
	}
	fill();
	const t = h("div", { class: "scroll" }, h("table", { id: opts.id, class: cols.some((c) => c.wide || c.mono) ? "full" : null }, h("thead", {}, h("tr", {}, heads)), body));
	if (all) return t;
	const more = h("button", { type: "button", onclick: () => { all = true; fill(); more.remove(); } }, "Show all " + count(rows.length));
	return h("div", {}, t, h("p", { class: "note" }, more));
}
const section = (id, title, ...inner) => h("section", { id: id, "aria-labelledby": id + "-h" }, h("h2", { id: id + "-h" }, title), inner);

/* ---- packed data (see html_int.h) ---------------------------------------------- */

function unbase64(s) {
	const b = atob(s), a = new Uint8Array(b.length);
	for (let i = 0; i < b.length; i++) a[i] = b.charCodeAt(i);
	return a;
}
function reader(a) {
	let i = 0;
	return {
		more: () => i < a.length,
		byte: () => a[i++],
		number() {
			let v = 0, m = 1, b;
			do { b = a[i++]; v += (b & 127) * m; m *= 128; } while (b & 128 && i < a.length);
			return v;
		},
	};
}
