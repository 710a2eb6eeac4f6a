/* The page of a comparison. Its figures are those of the diff, paths and all. */

function diffPage(C) {
	const names = C.inputs.map((e, i) => String.fromCharCode(65 + i));
	const reports = C.inputs.map((e, i) => data("report-" + i)), lengths = data("lengths") || [];
	const f = (path, unit) => fig(path, unit, C);
	const at = (i) => "inputs." + i + ".";
	D = C;
	document.title = "pipetrace: " + C.inputs.length + " captures compared";

	function pairText(p, i) {
		const path = "comparisons." + i + ".", s = p.speedup || {};
		return h("article", { class: "verdict " + (p.result === "slower" ? "critical" : ""), "data-id": clean(p.result) },
			h("div", { class: "head" }, h("span", { class: "badge " + (/^(faster|slower)$/.test(p.result) ? p.result : "") }, word(p.result)),
				h("span", { class: "title" }, names[p.other] + " against " + names[p.base] + ": ", known(s.value) ? [f(path + "speedup.value", "ratio"), " the throughput"] : unknown(),
					known(s.low) && known(s.high) && [" (", f(path + "speedup.low", "ratio"), " to ", f(path + "speedup.high", "ratio"), ", " + percent(C.method.level) + " interval)"])),
			h("dl", {}, h("dt", {}, "step"), h("dd", {}, change(p.step_ms_change, "ms", path + "step_ms_change")),
				h("dt", {}, "data wait"), h("dd", {}, points(p.data_wait_share_change, path + "data_wait_share_change")),
				h("dt", {}, "GPU idle"), h("dd", {}, word(p.gpu_idle || "unknown"), " (", points(p.gpu_idle_change, path + "gpu_idle_change"), ")"),
				known(p.untested) && [h("dt", {}, "not tested"), h("dd", { class: "text" }, p.untested)]));
	}
	const sign = (v, s) => (v > 0 ? "+" : "") + s;
	const change = (v, unit, path) => known(v) ? h("span", { "data-path": path, "data-unit": unit }, sign(v, FORMATS[unit](v))) : unknown();
	const points = (v, path) => known(v) ? h("span", { "data-path": path, "data-unit": "points" }, sign(v, digits(v * 100, 1)) + " points") : unknown();

	const longest = Math.max(...C.inputs.map((e) => e.step_ms || 0), 1e-9);
	const bars = C.inputs.map((e, i) => h("div", {}, h("p", { class: "note" }, h("b", {}, names[i]), " ", text(e.name || e.path), " · ", f(at(i) + "step_ms", "ms"), " a step"),
		h("div", { style: { width: 100 * (e.step_ms || 0) / longest + "%" } }, stack(PARTS.map((p) => ({ v: e.parts_ms[p] || 0, label: word(p), look: p })), e.step_ms || 1, true))));
	const rows = (key, list) => list.filter((p) => C.inputs.some((e) => e[key][p] > 0)).map((p) => ({ p }));
	const parts = (key, list, id) => table([{ name: "part", text: true, get: (r) => word(r.p), show: (r) => [swatch(r.p), " " + word(r.p)] }].concat(
		C.inputs.map((e, i) => ({ name: names[i], unit: "ms", get: (r) => e[key][r.p], show: (r) => f(at(i) + key + "." + r.p, "ms") })),
		C.comparisons.map((c, i) => ({ name: names[c.other] + " − " + names[c.base], unit: "ms", get: (r) => c[key + "_change"][r.p], show: (r) => change(c[key + "_change"][r.p], "ms", "comparisons." + i + "." + key + "_change." + r.p) })),
	), rows(key, list), { id });
	const looks = ["network", "disk", "cpu", "lock", "page_fault", "ipc"];
	const H = lengths.find((e) => e);
	const settings = C.comparisons.flatMap((c) => c.settings.map((s) => Object.assign({ pair: names[c.base] + " → " + names[c.other] }, s)));
	const content = [
		h("h1", {}, C.inputs.length + " captures compared"),
		h("p", { class: "sub" }, C.inputs.map((e, i) => names[i] + ": " + clean(e.name || e.path)).join(" · ")),
		h("div", { class: "tiles" }, C.inputs.map((e, i) => tile(names[i] + " · " + clean(e.name || e.path).slice(-40), C.by === "samples" ? [f(at(i) + "samples_per_second", "plain"), " samples/s"] : f(at(i) + "steps_per_second", "per_second"),
			"data wait ", f(at(i) + "data_wait_share", "share"), " · GPU idle ", f(at(i) + "gpu_idle.share", "share")))),
		section("result", "Result", C.comparisons.map(pairText), C.notes.length > 0 && h("ul", { class: "plain note" }, C.notes.map((n) => h("li", { class: "text" }, n)))),
		section("parts", "Where a step's time goes", bars, legend(PARTS.filter((p) => C.inputs.some((e) => e.parts_ms[p] > 0)).map((p) => [p])), parts("parts_ms", PARTS, "parts-table"),
			h("h3", {}, "The wait for data, by cause"), parts("causes_ms", Object.keys(C.inputs[0].causes_ms), "causes-table")),
		H && section("lengths", "Distribution of step times", histogram({ id: "plot-lengths", title: "Steps of each length", note: "Over the same bins, which grow by equal ratios." }, H,
			lengths.map((e, i) => e && { label: names[i], look: looks[i % looks.length], counts: e.counts, outline: i > 0, dash: i > 1 ? [6, 3] : undefined }).filter((e) => e))),
		C.ranking.length > 2 && section("ranking", "Ranking", table([{ name: "capture", text: true, get: (r) => names[r.input] + " " + clean(C.inputs[r.input].name || "") },
			{ name: C.by === "samples" ? "samples/s" : "steps/s", unit: "plain", get: (r) => r.value, path: "value" }, { name: "against the best", text: true, get: (r) => word(r.against_best) }], C.ranking, { path: "ranking", id: "ranking-table" })),
		settings.length > 0 && section("settings", "Other differences", table([{ name: "pair", text: true, get: (s) => s.pair }, { name: "setting", text: true, get: (s) => s.name },
			{ name: "first", text: true, get: (s) => s.base, show: (s) => known(s.base) ? text(s.base) : "–" }, { name: "then", text: true, get: (s) => s.other, show: (s) => known(s.other) ? text(s.other) : "–" }], settings, { id: "settings-table" })),
	];
	reports.forEach((r, i) => {
		if (!r) return;
		D = r;
		LIMITS = (r.capture && r.capture.limits) || [];
		const v = verdicts();
		v.id = "verdicts-" + i;
		v.removeAttribute("aria-labelledby");
		v.querySelectorAll("[id]").forEach((e) => e.removeAttribute("id"));
		v.querySelectorAll(".unknown a").forEach((e) => e.remove());
		v.querySelectorAll("[data-path]").forEach((e) => { e.dataset.report = i; });
		v.querySelector("h2").textContent = "Verdicts of " + names[i] + ": " + clean(C.inputs[i].name || "");
		content.push(v);
	});
	D = C;
	LIMITS = [];
	return { parts: content, draw: () => 0, show: () => 0, nav: [["result", "Result"], ["parts", "Parts"], ["lengths", "Step times"], ["settings", "Settings"], ["verdicts-0", "Verdicts"]] };
}
