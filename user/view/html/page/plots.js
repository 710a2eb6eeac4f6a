/* Plots, by uPlot. Where the page was built without it, or for who wants the
 * figures, the same data as a table. */

const plots = []; /* all, to be drawn again when the theme changes */
const canPlot = typeof window.uPlot === "function";

function axis(extra) {
	return Object.assign({ stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 },
		ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, 'DejaVu Sans', sans-serif" }, extra);
}

/* def: { id, title, note, x: { label, format }, y: { label, format, log }, data: [xs, ...],
 * series: [{ label, look, line, points, bars, fill, format }] } */
function plot(def) {
	const box = h("div", { class: "plotbox", role: "img", "aria-label": def.title });
	const wrap = h("div", { class: "plot", id: def.id }, h("h3", {}, def.title), box, def.note && h("p", { class: "note" }, def.note), asTable(def));
	if (!canPlot) return wrap;
	let u = null;
	function make() {
		const width = Math.max(220, box.clientWidth || 0);
		if (u) u.destroy();
		u = new window.uPlot({
			width, height: def.height || 230,
			cursor: { drag: { x: true, y: false }, points: { size: 7 } },
			legend: { live: true },
			scales: { x: Object.assign({ time: false }, def.x.range ? { range: def.x.range } : {}),
				y: def.y.log ? { distr: 3 } : { range: (s, lo, hi) => [Math.min(0, lo), hi > 0 ? hi * 1.06 : 1] } },
			axes: [axis({ values: (s, v) => v.map((t) => known(t) ? def.x.format(t) : ""), space: 70, splits: def.x.splits }),
				axis({ values: (s, v) => v.map((t) => known(t) ? def.y.format(t) : ""), size: 86, incrs: def.y.bytes ? Array.from({ length: 50 }, (e, i) => Math.pow(2, i)) : undefined, label: def.y.label, labelSize: 18, labelFont: "12px system-ui" })],
			series: [{ label: def.x.label, value: (s, v) => known(v) ? def.x.format(v) : "–" }].concat(def.series.map((s) => ({
				label: s.label, stroke: s.points && s.line === false ? look(s.look)[0] : s.ink ? css(s.ink) : look(s.look)[0],
				width: s.line === false ? 0 : s.width || 1.6, dash: s.dash,
				fill: s.fill ? look(s.look)[0] + (s.fill === true ? "55" : s.fill) : undefined,
				paths: s.bars ? window.uPlot.paths.bars({ size: [1, Infinity], align: 1 }) : s.steps ? window.uPlot.paths.stepped({ align: 1 }) : s.line === false ? () => null : undefined,
				points: { show: !!s.points, size: s.points || 5, fill: look(s.look)[0], stroke: css("--ink"), width: 1 },
				spanGaps: false, value: (p, v) => known(v) ? (s.format || def.y.format)(v) : "–",
			}))),
			bands: def.bands ? def.bands.map((b) => ({ series: b, fill: look("gpu_wait")[0] + "33" })) : undefined,
		}, def.data, box);
	}
	plots.push({ make, box });
	return wrap;
}

function asTable(def) {
	const first = 400, xs = def.data[0], fmt = (s) => s.format || def.y.format;
	const make = () => h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "t" }, def.x.label), def.series.map((s) => h("th", {}, s.label)))),
		h("tbody", {}, xs.slice(0, first).map((x, i) => h("tr", {}, h("td", { class: "t" }, def.x.format(x)),
			def.series.map((s, k) => h("td", {}, known(def.data[k + 1][i]) ? fmt(s)(def.data[k + 1][i]) : "–")))))),
	xs.length > first && h("p", { class: "note" }, "The first " + first + " of " + count(xs.length) + "."));
	const d = h("details", { open: !canPlot && xs.length <= 100 }, h("summary", {}, "As a table"));
	let made = false;
	d.addEventListener("toggle", () => { if (d.open && !made) { made = true; d.append(make()); } });
	return d;
}

function drawPlots() {
	for (const p of plots) p.make();
}
let lastWidth = 0;
window.addEventListener("resize", () => {
	if (window.innerWidth === lastWidth) return;
	lastWidth = window.innerWidth;
	requestAnimationFrame(drawPlots);
});

/* ---- the steps' columns -------------------------------------------------------- */

function unpackSteps(S) {
	if (!S) return null;
	const r = reader(unbase64(S.data)), o = { first: S.first, per: S.per, count: S.count, begin: [], mean: [], least: [], most: [], wait: [], cause: [], worker: [] };
	const ms = () => { const v = r.number(); return v ? (v - 1) / 1e3 : null; };
	let at = 0;
	while (r.more()) {
		at += r.number();
		o.begin.push(at);
		o.mean.push(ms());
		o.least.push(S.per > 1 ? ms() : null);
		o.most.push(S.per > 1 ? ms() : null);
		o.wait.push(ms());
		o.cause.push(r.number());
		o.worker.push(r.number() - 1);
	}
	o.begin = Float64Array.from(o.begin);
	return o;
}
/* As many columns as a plot can show, each with least, mean and largest. */
function thin(s, most) {
	const n = s.begin.length, k = Math.ceil(n / most);
	if (k <= 1 && s.per === 1) return null;
	const o = { x: [], mean: [], least: [], most: [], wait: [], per: k * s.per, k };
	const mean = (v) => v.length ? v.reduce((a, b) => a + b, 0) / v.length : null;
	for (let i = 0; i < n; i += k) {
		const part = (v) => v.slice(i, i + k).filter(known), m = part(s.mean);
		const lo = s.per > 1 ? part(s.least) : m, hi = s.per > 1 ? part(s.most) : m;
		o.x.push(s.begin[i] / 1e6);
		o.mean.push(mean(m));
		o.least.push(lo.length ? Math.min(...lo) : null);
		o.most.push(hi.length ? Math.max(...hi) : null);
		o.wait.push(mean(part(s.wait)));
	}
	return o;
}
function histogram(def, H, series) {
	const edges = H.edges, last = edges.length - 1;
	const wide = edges[last] > edges[0] * 12;
	return plot(Object.assign({
		x: { label: "step time from", format: (v) => wide ? millis(Math.pow(10, v)) : millis(v) },
		y: { label: "steps", format: (v) => Number.isInteger(v) ? count(v) : "" },
		data: [edges.map((e) => wide ? Math.log10(e) : e)].concat(series.map((s) => s.counts.concat(null))),
		series: series.map((s) => ({ label: s.label, look: s.look, bars: !s.outline, steps: s.outline, fill: s.outline ? false : "aa", width: s.outline ? 2 : 1, dash: s.dash, ink: s.ink, format: count })),
	}, def));
}
