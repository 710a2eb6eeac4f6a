/* The page of one capture. */

let D = null; /* the report */

const SEVERITY = { critical: "critical", warning: "warning", info: "info" };
const PARTS = ["data_wait", "gpu_wait", "transfer", "sync", "launch", "collective", "checkpoint", "other"];
const WORKER_PARTS = ["cpu", "run_queue", "throttle", "disk", "page_fault", "network", "lock", "ipc", "worker_idle", "prefetch_full", "other"];

/* Between bounds: what is certain solid, what is possible hatched. */
function meter(lo, hi, color) {
	const c = color || "#009e73";
	return h("div", { class: "meter", "aria-hidden": "true" },
		h("i", { style: { left: 0, width: 100 * lo + "%", background: c } }),
		h("i", { style: { left: 100 * lo + "%", width: 100 * Math.max(0, hi - lo) + "%", background: `repeating-linear-gradient(45deg,${c} 0 3px,transparent 3px 6px)` } }));
}
const tile = (k, v, ...d) => h("div", { class: "tile" }, h("div", { class: "k" }, k), h("div", { class: "v" }, v), d.length > 0 && h("div", { class: "d" }, d));

function busyTile(i, many) {
	const g = D.gpu[i], p = "gpu." + i + ".", b = g.busy || {};
	const bounds = b.hard && known(b.hard[0]) && known(b.hard[1]);
	return tile("GPU busy" + (many ? " " + (known(g.index) ? g.index : i) : ""), fig(p + "busy.share", "share"),
		bounds && meter(b.hard[0], b.hard[1]),
		bounds ? [fig(p + "busy.hard.0", "share"), " to ", fig(p + "busy.hard.1", "share"), ", " + word(b.certainty || "")] : b.certainty ? word(b.certainty) : null);
}
/* The best guess, and what is certain. */
function starvedTile() {
	const s = D.gpu[0].idle.starved || [], both = known(s[0]) && known(s[1]);
	return tile("GPU idle waiting for data", fig("gpu.0.idle.starved." + (known(s[1]) ? 1 : 0), "share"), both && meter(s[0], s[1], "#d55e00"),
		both ? ["at least ", fig("gpu.0.idle.starved.0", "share"), " of the time"] : "of the time");
}
function tiles() {
	const many = D.gpu.length > 1;
	return h("div", { class: "tiles" },
		D.gpu.slice(0, 4).map((g, i) => busyTile(i, many)),
		D.gpu.length > 0 && starvedTile(),
		tile("Waiting for data", D.breakdown ? fig("breakdown.data_wait.share", "share") : unknown("breakdown"), "of the trainer's time",
			D.breakdown && [" · ", fig("breakdown.data_wait.seconds", "s")]),
		tile("Steps", fig("steps.per_second", "per_second"), fig("steps.count", "count"), " in ", fig("capture.duration", "s"),
			known(D.steps.samples_per_second) && [" · ", fig("steps.samples_per_second", "plain"), " samples/s"]),
		tile("Step time, median", D.steps.period_ms ? fig("steps.period_ms.p50", "ms") : unknown("steps"),
			D.steps.period_ms && ["p99 ", fig("steps.period_ms.p99", "ms"), " · longest ", fig("steps.period_ms.max", "ms")]));
}

/* ---- verdicts --------------------------------------------------------------------- */

const METRIC = (s) => Object.hasOwn(EVIDENCE, s) ? EVIDENCE[s] : clean(s); /* evidence.def */
function evidence(v, path) {
	if (!v.evidence.length) return null;
	return h("ul", { class: "evidence" }, v.evidence.map((e, i) => h("li", {}, METRIC(e.metric) + " ",
		h("b", {}, fig(path + ".evidence." + i + ".value", e.unit)),
		known(e.certainty) && e.certainty !== "measured" && h("span", { class: "soft" }, " " + word(e.certainty)),
		known(e.threshold) && h("span", { class: "soft" }, " (threshold ", fig(path + ".evidence." + i + ".threshold", e.unit), ")"))));
}
function who(v) {
	const s = v.subject || {}, out = [];
	const w = known(s.pid) && (D.workers || []).find((e) => e.pid === s.pid);
	if (known(s.pid)) out.push((w ? word(w.role || "process") : "process") + " " + s.pid);
	if (known(s.rank)) out.push("rank " + s.rank);
	const names = [out.join(", ")];
	if (known(s.file)) names.push(text(s.file + (known(s.line) ? ":" + s.line : ""), "mono"));
	return names[0] || names.length > 1 ? names.filter((e) => e).map((e, i) => [i > 0 && " · ", e]) : null;
}
const GAIN_LEAST = 1.005; /* as in the text (view/text/verdict.c) */
function gain(v, path) {
	const g = v.expected_speedup || {}, p = path + ".expected_speedup.";
	if (!known(g.value) && !known(g.high)) return null;
	return [known(g.value) ? (g.value < GAIN_LEAST ? ["none"] : [fig(p + "value", "ratio"), " faster"]) : ["up to ", fig(p + "high", "ratio"), " faster if the cause is removed entirely"],
		known(g.value) && known(g.low) && known(g.high) && h("span", { class: "soft" }, " (", fig(p + "low", "ratio"), " to ", fig(p + "high", "ratio"), ")")];
}
function verdict(v, i, children) {
	const path = "verdicts." + i, w = who(v), g = gain(v, path);
	const inside = (v.stack || []).map((f) => h("li", {}, text(f.function, "mono"), h("span", { class: "soft text mono" }, " " + f.file + (known(f.line) ? ":" + f.line : ""))));
	const facts = [w && [h("dt", {}, "Subject"), h("dd", {}, w)],
		known(v.advice) && [h("dt", {}, "Fix"), h("dd", { class: "text", "data-path": path + ".advice" }, v.advice)],
		g && [h("dt", {}, "Expected gain"), h("dd", {}, g)],
		inside.length > 0 && [h("dt", {}, "Stack"), h("dd", {}, h("details", {}, h("summary", {}, count(inside.length) + " functions, the innermost first"), h("ol", { class: "inside" }, inside)))]].filter((e) => e);
	return h("article", { class: "verdict " + (SEVERITY[v.severity] || ""), id: "verdict-" + i, "data-id": clean(v.id) },
		h("div", { class: "head" }, h("span", { class: "badge " + (SEVERITY[v.severity] || "") }, v.severity),
			h("span", { class: "title text", "data-path": path + ".title" }, v.title),
			h("a", { class: "id", href: "#" + clean(v.id) }, v.id + (known(v.certainty) ? " · " + v.certainty + " confidence" : ""))),
		facts.length > 0 && h("dl", {}, facts),
		evidence(v, path), children.length > 0 && h("div", { class: "children" }, children));
}
/* Roots in their order, below each what follows from it. */
function verdicts() {
	const all = D.verdicts.map((v, i) => ({ v, i })), ids = new Set(D.verdicts.map((v) => v.id));
	const done = new Set();
	function put(e) {
		if (done.has(e.i)) return null;
		done.add(e.i);
		return verdict(e.v, e.i, all.filter((c) => c.v.consequence_of === e.v.id && !done.has(c.i)).map(put).filter((c) => c));
	}
	const roots = all.filter((e) => !known(e.v.consequence_of) || !ids.has(e.v.consequence_of)).map(put);
	roots.push(...all.map(put)); /* circles of a damaged report */
	return section("verdicts", "What is wrong, and what to do", D.verdicts.length ? roots : h("p", {}, "No verdict."));
}

/* ---- where the time goes -------------------------------------------------------------- */

function breakdown() {
	const b = D.breakdown, out = [];
	if (!b) return section("time", "Where the trainer's time goes", h("p", {}, unknown("breakdown")));
	const rows = PARTS.filter((p) => b[p]).map((p) => ({ p, s: b[p].share }));
	out.push(stack(rows.map((r) => ({ v: r.s, label: word(r.p), look: r.p })), 1, true));
	out.push(h("ul", { class: "legend" }, rows.filter((r) => r.s > 0).map((r) => h("li", {}, swatch(r.p), word(r.p) + " ", fig("breakdown." + r.p + ".share", "share"),
		h("span", { class: "soft" }, fig("breakdown." + r.p + ".seconds", "s"))))));
	if (D.data_wait && D.data_wait.causes.length) {
		const w = D.data_wait;
		out.push(h("h3", {}, "Why it waited for data"), stack(grouped(w.causes), 1, true),
			legend(grouped(w.causes).map((c) => [c.look, c.label + " " + percent(c.v)])),
			h("p", { class: "note" }, "blocked ", fig("data_wait.blocked", "s"), " · own reads ", fig("data_wait.own_read", "s"), " · own CPU ", fig("data_wait.own_cpu", "s"),
				" · hand-over ", fig("data_wait.handover", "s"), " · from obtained to first use ", fig("data_wait.lead", "s")),
			table([
				{ name: "cause", text: true, get: (c) => word(c.cause), show: (c) => [swatch(c.cause), " " + word(c.cause)] },
				{ name: "share", unit: "share", get: (c) => c.share, path: "share" },
				{ name: "time", unit: "s", get: (c) => c.seconds, path: "seconds" },
				{ name: "whose", text: true, get: (c) => c.subject ? c.subject.pid : null, show: (c) => c.subject ? nameOfPid(c.subject.pid) + (c.subject.tid !== c.subject.pid && known(c.subject.tid) ? ", thread " + c.subject.tid : "") : "–" },
				{ name: "what", text: true, mono: true, get: (c) => c.what, show: (c) => known(c.what) ? text(c.what) : "" },
			], w.causes, { path: "data_wait.causes", id: "causes-table", first: SHOWN }));
	}
	if (D.phases && D.phases.length) out.push(h("h3", {}, "Phases of a step"), table([
		{ name: "phase", text: true, get: (p) => word(p.name) }, { name: "share", unit: "share", get: (p) => p.share, path: "share" },
		{ name: "time", unit: "s", get: (p) => p.seconds, path: "seconds" }, { name: "certainty", text: true, get: (p) => p.certainty },
	], D.phases, { path: "phases", id: "phases-table" }));
	return section("time", "Where the trainer's time goes", out);
}
function nameOfPid(pid) {
	const w = (D.workers || []).find((e) => e.pid === pid);
	return (w ? word(w.role || "process") : pid === D.target.pid ? "trainer" : "process") + " " + pid;
}
function grouped(causes) {
	const sum = new Map();
	for (const c of causes) sum.set(c.cause, (sum.get(c.cause) || 0) + c.share);
	return [...sum].sort((a, b) => b[1] - a[1]).map(([c, v]) => ({ v, label: word(c), look: c }));
}

/* ---- steps ------------------------------------------------------------------------- */

function stepPlots(S, steps) {
	const out = [], secs = (v) => digits(v, v < 10 ? 1 : 0) + " s";
	if (!steps) return h("p", {}, unknown("steps"));
	const few = thin(steps, 500), xs = few ? few.x : Array.from(steps.begin, (t) => t / 1e6), n = xs.length;
	const per = few ? few.per : 1, odd = new Array(n).fill(null), wait = few ? few.wait : steps.wait;
	let marked = 0;
	for (const o of D.steps.outliers || []) {
		const i = Math.floor((o.index - steps.first) / per);
		if (i >= 0 && i < n) { odd[i] = Math.max(odd[i] || 0, o.ms); marked++; }
	}
	const all = (few ? few.most : steps.mean).filter(known), usual = D.steps.period_ms ? D.steps.period_ms.p50 : 0;
	const log = usual > 0 && Math.max(...all, ...odd.filter(known)) > 25 * usual;
	const waits = { label: "data wait" + (few ? ", mean" : ""), look: "data_wait", width: 1, fill: log ? undefined : "55" };
	const data = few ? [xs, few.least, few.most, few.mean, wait, odd] : [xs, steps.mean, wait, odd];
	const mark = { label: "outlier", look: "page_fault", line: false, points: 8 };
	const series = few ? [{ label: "shortest", look: "gpu_idle", width: .6 }, { label: "longest", look: "gpu_idle", width: .6 }, { label: "mean", look: "network", width: 1.8 }, waits, mark] :
		[{ label: "step time", look: "network", width: 1.5 }, waits, mark];
	out.push(plot({ id: "plot-steps", title: "Step time and data wait", height: 250, series, bands: few ? [[2, 1]] : undefined,
		data: log ? data.map((d, i) => i ? d.map((v) => v > 0 ? v : null) : d) : data,
		x: { label: "time", format: secs }, y: { format: millis, log },
		note: (per > 1 ? "Each point stands for " + per + " steps; the band is from the shortest to the longest. " : "") + (marked ? count(marked) + " outliers are marked. " : "") + "Drag to zoom, double-click for all." }));
	if (S.histogram) out.push(histogram({ id: "plot-histogram", title: "Distribution of step times", height: 250, note: "Bins grow with the time, by equal ratios." }, S.histogram,
		[{ label: "steps", look: "network", counts: S.histogram.counts }]));
	return h("div", { class: "two" }, out);
}
function outliers() {
	const o = D.steps.outliers || [];
	if (!o.length) return null;
	return [h("h3", {}, "Outliers"), table([
		{ name: "step", unit: "count", get: (s) => s.index, path: "index" }, { name: "time", unit: "ms", get: (s) => s.ms, path: "ms" },
		{ name: "most of its wait", text: true, get: (s) => s.cause ? word(s.cause) : null, show: (s) => s.cause ? [swatch(s.cause), " " + word(s.cause)] : "–" },
	], o, { path: "steps.outliers", id: "outliers-table", first: 6 })];
}
function stepFacts() {
	const s = D.steps, p = s.period_ms;
	return h("p", {}, fig("steps.count", "count"), " steps, ", fig("steps.batches", "count"), " batches",
		known(s.source) && ", found by " + word(s.source) + (known(s.certainty) ? " (" + s.certainty + " confidence)" : ""),
		p && [" · mean ", fig("steps.period_ms.mean", "ms"), " ± ", fig("steps.period_ms.std", "ms"), " · p50 ", fig("steps.period_ms.p50", "ms"), " · p95 ",
			fig("steps.period_ms.p95", "ms"), " · p99 ", fig("steps.period_ms.p99", "ms")],
		" · first ", fig("steps.first_ms", "ms"), " · longest / shortest ", fig("steps.max_over_min", "ratio"));
}
/* Figures that were sampled, against time. */
function seriesPlots() {
	const s = D.series || [], secs = (v) => digits(v, 0) + " s", xs = s.map((p) => p.t), out = [];
	const has = (k) => s.some((p) => known(p[k])), col = (k) => s.map((p) => known(p[k]) ? p[k] : null);
	const one = (id, title, unit, list) => {
		const here = list.filter(([k]) => has(k));
		if (here.length) out.push(plot({ id, title, data: [xs].concat(here.map(([k]) => col(k))), x: { label: "time", format: secs }, y: { format: FORMATS[unit], bytes: /^bytes/.test(unit) },
			series: here.map(([, label, l, dash]) => ({ label, look: l, dash, fill: here.length === 1, points: xs.length < 40 ? 5 : 0 })) }));
	};
	one("plot-wait", "Share of the time that waits for data", "share", [["data_wait_share", "data wait", "data_wait"], ["gpu_util", "GPU utilization", "gpu_busy", [6, 3]]]);
	one("plot-memory", "Memory of the job", "bytes", [["rss", "resident", "network"], ["shm", "shared memory", "lock", [6, 3]], ["gpu_mem", "GPU memory", "gpu_busy", [2, 3]]]);
	one("plot-cpu", "Cores in use", "plain", [["cpu", "cores", "cpu"]]);
	one("plot-read", "Bytes read by the job's calls", "bytes_s", [["read_bps", "read", "disk"]]);
	return out;
}

/* ---- workers ------------------------------------------------------------------------ */

const stateLook = (p) => p === "cpu" ? "running" : p; /* what it did, not what was waited for */
function workers() {
	const w = D.workers || [];
	if (!w.length) return section("workers", "Workers", h("p", {}, "No loader worker was seen."));
	const parts = WORKER_PARTS.filter((p) => w.some((e) => e[p] > 0));
	const cols = [
		{ name: "pid", unit: "id", get: (e) => e.pid, show: (e) => String(e.pid) + (e.tid !== e.pid && known(e.tid) ? " / " + e.tid : "") },
		{ name: "role", text: true, get: (e) => e.role },
		{ name: "batches", unit: "count", get: (e) => e.batches, path: "batches" },
		{ name: "p50", unit: "ms", get: (e) => e.batch_ms ? e.batch_ms.p50 : null, path: "batch_ms.p50" },
		{ name: "p95", unit: "ms", get: (e) => e.batch_ms ? e.batch_ms.p95 : null, path: "batch_ms.p95" },
		{ name: "time by what it did", text: true, wide: true, fixed: true, get: () => 0, show: (e) => known(e.window) && e.window > 0 ?
			stack(parts.map((p) => ({ v: e[p] || 0, label: word(p), look: stateLook(p) })), e.window) : unknown("workers") },
		{ name: "CPU", unit: "s", get: (e) => e.cpu, path: "cpu" },
		{ name: "disk", unit: "s", get: (e) => e.disk, path: "disk" },
		{ name: "read", unit: "bytes", get: (e) => e.read_bytes, path: "read_bytes" },
		{ name: "slowdown", unit: "ratio", get: (e) => e.slowdown, path: "slowdown" },
		{ name: "state", text: true, get: (e) => e.state, show: (e) => h("span", { class: "badge " + (/^(ok|slow|hung)$/.test(e.state) ? e.state : "") }, e.state) },
	];
	if (w.some((e) => known(e.rank))) cols.splice(2, 0, { name: "rank", unit: "count", get: (e) => e.rank, path: "rank" });
	return section("workers", "Workers", legend(parts.map((p) => [stateLook(p), word(p)])), table(cols, w, { path: "workers", id: "workers-table", first: 40 }));
}
function ranks() {
	const r = D.ranks || [];
	if (!r.length) return null;
	const met = r.some((e) => e.collectives);
	return section("ranks", "Ranks", legend(PARTS.map((p) => [p])), table([
		{ name: "pid", unit: "id", get: (e) => e.pid, show: (e) => String(e.pid) }, { name: "rank", unit: "count", get: (e) => e.rank, path: "rank" },
		{ name: "steps", unit: "count", get: (e) => e.steps, path: "steps" },
		{ name: "time", text: true, wide: true, fixed: true, get: () => 0, show: (e) => e.breakdown ? stack(PARTS.filter((p) => e.breakdown[p]).map((p) => ({ v: e.breakdown[p].share, label: word(p), look: p })), 1) : unknown("ranks") },
		{ name: "data wait", unit: "share", get: (e) => e.breakdown ? e.breakdown.data_wait.share : null, path: "breakdown.data_wait.share" },
		{ name: "own p50", unit: "ms", get: (e) => e.parts_ms && e.parts_ms.own ? e.parts_ms.own.p50 : null, path: "parts_ms.own.p50" },
		...(met ? [
			{ name: "collectives", unit: "count", get: (e) => e.collectives ? e.collectives.count : null, path: "collectives.count" },
			{ name: "was last", unit: "share", get: (e) => e.collectives ? e.collectives.last_share : null, path: "collectives.last_share" },
			{ name: "late p50", unit: "ms", get: (e) => e.collectives && e.collectives.late_ms ? e.collectives.late_ms.p50 : null, path: "collectives.late_ms.p50" },
			{ name: "others waited", unit: "s", get: (e) => e.collectives ? e.collectives.held_others_s : null, path: "collectives.held_others_s" },
			{ name: "for", text: true, get: (e) => e.collectives ? e.collectives.reason : null, show: (e) => e.collectives && e.collectives.reason ? word(e.collectives.reason) : "" },
		] : []),
	], r, { path: "ranks", id: "ranks-table" }));
}

/* ---- what if --------------------------------------------------------------------------- */

function whatif() {
	const c = (D.whatif && D.whatif.changes) || [];
	if (!c.length) return null;
	const byWorkers = c.filter((e) => e.change === "workers" && known(e.value)).sort((a, b) => a.value - b.value);
	const out = [];
	/* step time is old / speedup; the bounds of one are those of the other */
	const bound = (e, k) => known(e.step_ms) && e.speedup && known(e.speedup[k]) ? e.step_ms * e.speedup.value / e.speedup[k] : null;
	const told = byWorkers.map((e) => known(e.step_ms)), last = told.lastIndexOf(true);
	if (last >= 0) byWorkers.length = Math.min(byWorkers.length, last + 2); /* the rest cannot be told */
	if (last >= 0) out.push(plot({
		id: "plot-whatif", title: "Predicted step time by number of workers",
		data: [byWorkers.map((e) => e.value), byWorkers.map((e) => bound(e, "high")), byWorkers.map((e) => bound(e, "low")), byWorkers.map((e) => e.step_ms)],
		series: [{ label: "at least", look: "gpu_wait", width: 1, dash: [3, 3] }, { label: "at most", look: "gpu_wait", width: 1, dash: [3, 3] }, { label: "predicted", look: "network", width: 2, points: 8 }],
		bands: [[2, 1]],
		x: { label: "workers", format: (v) => Number.isInteger(v) ? String(v) : "", splits: () => byWorkers.map((e) => e.value), range: (u, lo, hi) => [lo - .3, hi + .3] }, y: { format: millis },
		note: "A gap means that the range is too wide to predict." }));
	const rows = c.map((e, i) => ({ e, i }));
	const p = (r) => "whatif.changes." + r.i;
	const list = table([
		{ name: "change", text: true, get: (r) => r.e.change === "workers" ? r.e.value + (r.e.value === 1 ? " worker" : " workers") : word(r.e.change) },
		{ name: "step time", unit: "ms", get: (r) => r.e.step_ms, show: (r) => known(r.e.step_ms) ? fig(p(r) + ".step_ms", "ms") : h("span", { class: "unknown" }, "cannot tell") },
		{ name: "as fast", unit: "ratio", get: (r) => r.e.speedup.value, show: (r) => known(r.e.speedup.value) ? [fig(p(r) + ".speedup.value", "ratio"),
			known(r.e.speedup.low) && h("span", { class: "soft" }, " (", fig(p(r) + ".speedup.low", "ratio"), " – ", fig(p(r) + ".speedup.high", "ratio"), ")")] : "" },
		{ name: "why not", text: true, get: (r) => r.e.note, show: (r) => known(r.e.note) ? text(r.e.note) : "" },
	], rows, { id: "whatif-table" });
	return section("whatif", "What if", h("p", {}, "The observed steps, replayed with one thing changed.",
		known(D.whatif.best_workers) && [" Best number of workers: ", fig("whatif.best_workers", "count"), "."]), h("div", { class: "two" }, out, h("div", {}, list)));
}

/* ---- operations, GPU ------------------------------------------------------------------ */

function operations() {
	const o = D.operations || [];
	if (!o.length) return section("operations", "Operations", h("p", {}, "No GPU library call was seen."));
	const cols = [{ name: "operation", text: true, mono: true, get: (e) => e.name }, { name: "kind", text: true, get: (e) => e.kind },
		col("calls", "count"), col("total_s", "s", "total"), share("share"), col("mean_us", "us", "mean"), col("p50_us", "us", "p50"), col("p99_us", "us", "p99"), col("max_us", "us", "max"),
		col("cpu_s", "s", "CPU"), col("gpu_s", "s", "GPU"), col("bytes", "bytes")];
	return section("operations", "Operations", table(lonely(o, cols), o, { path: "operations", id: "operations-table", first: 15 }));
}
function gpus() {
	const rows = D.gpu || [];
	if (!rows.length) return section("gpu", "GPU", h("p", {}, unknown("gpu")));
	return section("gpu", "GPU", rows.map((g, i) => {
		const p = "gpu." + i + ".", c = g.copies || {};
		return h("div", {}, rows.length > 1 && h("h3", {}, "GPU " + (known(g.index) ? g.index : i)),
			h("p", {}, known(g.name) && [text(g.name), " · "], "busy ", fig(p + "busy.share", "share"), " (compute ", fig(p + "busy.compute", "share"), ", copies ", fig(p + "busy.copy", "share"),
				", collectives ", fig(p + "busy.collective", "share"), ") · ", fig(p + "kernels", "count"), " kernels · ", fig(p + "copies.h2d", "count"), " copies to the GPU, ",
				fig(p + "copies.bytes", "bytes"), " · ", fig(p + "syncs", "count"), " syncs · failed allocations ", fig(p + "failed_allocations", "count")),
			(g.idle_causes || []).length > 0 && [h("h3", {}, "Why it was idle"), stack(g.idle_causes.map((e) => ({ v: e.share, label: word(e.cause), look: e.cause })), Math.max(1e-9, g.idle_causes.reduce((a, e) => a + e.share, 0)), true),
				h("ul", { class: "legend" }, g.idle_causes.slice(0, SHOWN).map((e, k) => h("li", {}, swatch(e.cause), word(e.cause) + " ", fig(p + "idle_causes." + k + ".share", "share"),
					known(e.what) && h("span", { class: "soft text" }, clean(e.what)))))]);
	}));
}

/* ---- the capture itself ------------------------------------------------------------------ */

function capture() {
	const c = D.capture, hooks = Object.entries(c.hooks || {}), l = D.loader || {};
	const value = (s) => s && known(s.value) ? String(s.value) : null;
	return section("capture", "The capture", h("p", {}, fig("capture.duration", "s"), known(c.mode) && " · " + word(c.mode) + " mode", " · ", fig("capture.events", "count"), " events · ",
		c.lost && c.lost.total === 0 ? "none lost" : ["lost ", fig("capture.lost.total", "count")], " · tracer used ", fig("capture.tracer_cpu_s", "s"), " of CPU", c.complete === false && " · not complete"),
	h("p", {}, "Hooks: ", hooks.map(([k, v], i) => [i > 0 && " · ", word(k) + " ", known(v) ? h("b", {}, clean(v)) : "none"])),
	h("p", {}, "Loader: ", Object.keys(l).map((k) => value(l[k]) && word(k) + " " + clean(value(l[k]))).filter((s) => s).join(" · ") || "unknown"),
	(D.thresholds || []).length > 0 && h("p", {}, "Thresholds not at their default: ", D.thresholds.map((t) => clean(t.name) + " " + t.value).join(" · ")),
	h("h3", {}, "Limitations"), LIMITS.length ? h("ol", { class: "limits" }, LIMITS.map((e, i) => h("li", { id: "limit-" + (i + 1) }, h("b", {}, e.what), ": ", text(e.reason)))) : h("p", {}, "None."));
}

function reportPage(T) {
	LIMITS = (D.capture && D.capture.limits) || [];
	SHOWN = T.causes_shown;
	const steps = unpackSteps(T.steps), t = D.target || {}, name = t.cmdline || t.comm || "process " + t.pid;
	const labels = Object.entries(D.labels || {}).map(([k, v]) => clean(k) + "=" + clean(v));
	const when = known(D.capture.begin_unix_ns) ? new Date(Number(BigInt(D.capture.begin_unix_ns) / 1000000n)) : null;
	document.title = "pipetrace: " + clean(name).slice(0, 60);
	const line = T.lanes.length ? Timeline(T, steps) : null;
	const parts = [
		h("h1", { class: "text" }, clean(name)),
		h("p", { class: "sub" }, [known(t.pid) && "pid " + t.pid, known(t.user) && "user " + clean(t.user), known(D.host.hostname) && clean(D.host.hostname), known(D.host.kernel) && "Linux " + clean(D.host.kernel),
			when && !isNaN(when) && when.toISOString().slice(0, 19).replace("T", " ") + " UTC", seconds(D.capture.duration || 0) + " traced"].concat(labels).filter((s) => s).join(" · ")),
		tiles(), windows(), verdicts(),
		section("timeline", "Timeline", line ? line.element : h("p", {}, "Nothing to draw.")),
		breakdown(), section("steps", "Steps", stepFacts(), stepPlots(T.steps || {}, steps), outliers()),
		ranks(), workers(), lines(), stacks(data("stacks")), whatif(),
		section("series", "Over time", h("div", { class: "two" }, seriesPlots()), memory(), h("p", { class: "note" }, "Growth of memory: ", known(D.memory && D.memory.growth_per_min) ? [fig("memory.growth_per_min", "bytes"), " a minute"] : unknown("memory.growth_per_min"))),
		gpus(), files(), disks(), writes(), peers(), operations(), capture(),
	];
	return { parts, draw: line ? line.draw : () => 0, show: line ? line.show : () => 0,
		nav: [["windows", "Windows"], ["verdicts", "Verdicts"], ["timeline", "Timeline"], ["time", "Time"], ["steps", "Steps"], ["workers", "Workers"], ["lines", "Lines"], ["stacks", "Stacks"], ["whatif", "What if"], ["series", "Over time"], ["gpu", "GPU"], ["files", "Files"], ["disks", "Disks"], ["writes", "Writes"], ["peers", "Network"], ["operations", "Operations"], ["capture", "Capture"]] };
}
