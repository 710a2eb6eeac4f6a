/* Stacks of Python: a flame graph, and the lines of the job with the time that went there.
 * Nodes come as stacks.c packs them. */

const FRAME = 21; /* px */
const ROWS = 6; /* at least, before outer functions are left out */
const height = (n) => n.kids.length ? 1 + Math.max(...n.kids.map(height)) : 0;
const WHO = { trainer: "Training thread", workers: "Workers", others: "Other threads" };

function flameTree(P, side, byLine) {
	const root = { line: null, own: 0, total: 0, kids: [], up: null }, at = [root], all = [];
	for (let i = 0; i < side.nodes.length; i += 3) {
		const up = at[side.nodes[i]] || root, line = side.nodes[i + 1], l = P.lines[line];
		const same = (k) => k.line === line || !byLine && line >= 0 && k.line >= 0 && P.lines[k.line][0] === l[0] && P.files[P.lines[k.line][1]] === P.files[l[1]];
		let n = up.kids.find(same);
		if (!n) {
			n = { line, own: 0, total: 0, kids: [], up };
			up.kids.push(n);
			all.push(n);
		}
		n.own += side.nodes[i + 2] / 1e6;
		at.push(n);
	}
	for (const n of all.reverse()) { /* who was called before its caller */
		n.total += n.own;
		n.up.total += n.total;
		n.kids.sort((a, b) => b.total - a.total);
	}
	root.kids.sort((a, b) => b.total - a.total);
	return root;
}

function Flame(P, byLine) {
	const graph = h("div", { class: "flame", tabindex: 0, role: "group", id: "flame" }), said = h("p", { class: "readout", "aria-live": "polite" });
	const elements = new Map();
	let root, from, hidden, title, zoomed, chosen, whole = false;
	const base = (f) => f.slice(f.lastIndexOf("/") + 1);
	const where = (n, short) => { const l = P.lines[n.line], f = P.files[l[1]]; return (short ? base(f) : f) + (byLine() && l[2] ? ":" + l[2] : ""); };
	const name = (n) => n.line >= 0 ? P.lines[n.line][0] : n.line === -1 ? "smaller ones" : P.waits[-2 - n.line];
	const tell = (n) => (n.line >= 0 ? name(n) + " (" + where(n) + ")" : name(n)) + " · " + seconds(n.total) + ", " + percent(n.total / (root.total || 1)) +
		(n.kids.length && n.own > 0 ? ", of that " + seconds(n.own) + " not in what it calls" : "");
	function look(n) {
		if (n.line < -1) return cssLook(name(n).replace(/ /g, "_"));
		return n.line === -1 ? "var(--shade)" : null;
	}
	function choose(n) {
		if (chosen && elements.get(chosen)) elements.get(chosen).classList.remove("chosen");
		chosen = n;
		said.textContent = n ? clean(tell(n)) : "";
		const e = n && elements.get(n);
		if (e) e.classList.add("chosen");
	}
	function frame(n, x, w, row, more) {
		const e = h("div", { class: "frame " + (n.line < 0 ? "state" : P.lines[n.line][3] ? "theirs" : "ours") + (more || ""), title: clean(tell(n)),
			style: { left: 100 * x + "%", width: 100 * w + "%", top: FRAME * row + "px", background: look(n) },
			onclick: () => { zoomed = zoomed === n ? null : n; draw(n); }, onmouseenter: () => choose(n) },
		w > .02 && h("span", {}, name(n), n.line >= 0 && h("i", {}, " " + where(n, true))));
		elements.set(n, e);
		graph.append(e);
	}
	/* How many rows there are. */
	function place(n, x, w, row, total) {
		let rows = row;
		for (const k of n.kids) {
			const v = w * k.total / total;
			if (v < .0012) continue;
			frame(k, x, v, row);
			rows = Math.max(rows, place(k, x, v, row + 1, k.total || 1));
			x += v;
		}
		return rows;
	}
	function draw(keep) {
		const outer = [];
		for (let n = zoomed; n && n !== from && n.up; n = n.up) outer.unshift(n);
		elements.clear();
		graph.replaceChildren(h("div", { class: "frame all", style: { left: 0, width: "100%", top: 0 }, title: hidden ? "Show or hide the outer functions" : null,
			onclick: () => { if (zoomed) zoomed = null; else whole = !whole; start(); } },
		h("span", {}, title, hidden > 0 && h("i", {}, " · " + (whole ? "hide" : "show") + " the " + hidden + " outer functions that " + (from === root ? "most of it is in" : from.total >= .9995 * root.total ? "all of it is in" : percent(from.total / root.total) + " of it is in")))));
		outer.forEach((n, i) => frame(n, 0, 1, i + 1, n === zoomed ? "" : " outer"));
		const top = zoomed || from, rows = place(top, 0, 1, outer.length + 1, top.total || 1);
		graph.style.height = FRAME * rows + "px";
		choose(keep && elements.has(keep) ? keep : null);
	}
	function start() {
		from = root;
		/* a thread that runs while its stack is read may be seen without its outer functions */
		for (hidden = 0; from.kids.length && from.kids[0].kids.length && from.kids[0].total >= .9 * root.total; hidden++) from = from.kids[0];
		for (; hidden && height(from) < ROWS; hidden--) from = from.up;
		if (hidden < 3) hidden = 0;
		if (!hidden || whole) from = root;
		draw(null);
	}
	graph.addEventListener("keydown", (e) => {
		const n = chosen || from, peers = n.up ? n.up.kids : [], i = peers.indexOf(n);
		const to = { ArrowDown: n.kids[0], ArrowUp: n.up, ArrowRight: peers[i + 1], ArrowLeft: peers[i - 1] }[e.key];
		if (e.key === "Enter" && chosen) { zoomed = chosen; draw(chosen); }
		else if (e.key === "Escape") { zoomed = null; draw(chosen); }
		else if (to && elements.has(to)) { choose(to); elements.get(to).scrollIntoView({ block: "nearest" }); }
		else if (!/^(Arrow|Enter)/.test(e.key)) return;
		e.preventDefault();
	});
	return { graph, said, show(side, text) { title = text; root = flameTree(P, side, byLine()); zoomed = chosen = null; start(); } };
}

/* ---- the same time by line ------------------------------------------------------- */

/* Of each line of the job's own code (of all code, where a job has none): seconds in which it
 * was the innermost such line, and with all that it calls; running, asleep. */
function flameLines(P, group) {
	const ours = P.lines.some((l) => !l[3]), rows = new Map();
	const of = (l) => P.lines[l][0] + "\n" + P.files[P.lines[l][1]], trainer = P.groups.find((g) => g.who === "trainer"), loop = new Set();
	if (trainer && group !== trainer) ["running", "asleep"].forEach((s) => trainer[s].nodes.forEach((l, i) => i % 3 === 1 && l >= 0 && loop.add(of(l))));
	let all = 0;
	["running", "asleep"].forEach((state, s) => {
		const n = group[state].nodes;
		for (let i = 0; i < n.length; i += 3) {
			const v = n[i + 2] / 1e6, met = new Set(), chain = [];
			if (!v) continue;
			all += v;
			let inner = n[i + 1] !== -1;
			for (let at = i; at >= 0; at = 3 * (n[at] - 1)) if (n[at + 1] >= 0) chain.push(n[at + 1]);
			/* a forked worker is not in the loop that started it */
			while (chain.length && loop.has(of(chain[chain.length - 1]))) chain.pop();
			for (const line of chain) {
				if (ours && P.lines[line][3] || met.has(line)) continue;
				met.add(line);
				if (!rows.has(line)) rows.set(line, { line, here: [0, 0], all: [0, 0] });
				const r = rows.get(line);
				r.all[s] += v;
				if (inner) r.here[s] += v;
				inner = false;
			}
		}
	});
	/* what all of it is in says nothing */
	return [...rows.values()].filter((r) => r.here[0] + r.here[1] > .001 * all || r.all[0] + r.all[1] < .995 * all);
}

const HEAT_ROWS = 40;
function heatMap(P, group) {
	let rows = flameLines(P, group).sort((a, b) => b.all[0] + b.all[1] - a.all[0] - a.all[1]);
	const left = rows.length - HEAT_ROWS, file = (r) => P.files[P.lines[r.line][1]], max = [0, 1].map((s) => Math.max(1e-9, ...rows.map((r) => r.all[s])));
	rows = rows.slice(0, HEAT_ROWS);
	const most = new Map();
	for (const r of rows) most.set(file(r), Math.max(most.get(file(r)) || 0, r.here[0] + r.here[1]));
	rows.sort((a, b) => most.get(file(b)) - most.get(file(a)) || (file(a) < file(b) ? -1 : file(a) > file(b) ? 1 : 0) || P.lines[a.line][2] - P.lines[b.line][2]);
	if (!rows.length) return null;
	/* the folder that all of them lie in goes without saying */
	const paths = rows.map(file).filter((f) => f.startsWith("/"));
	let common = paths.length ? paths[0].slice(0, paths[0].lastIndexOf("/") + 1) : "";
	while (common && !paths.every((f) => f.startsWith(common))) common = common.length > 1 ? common.slice(0, common.lastIndexOf("/", common.length - 2) + 1) : "";
	const heat = (title, key, s) => ({ name: title, unit: "s", get: (r) => r[key][s],
		show: (r) => r[key][s] < 5e-4 ? "" : h("span", { class: "heat", style: { background: `rgba(213,94,0,${(.06 + .6 * r[key][s] / max[s]).toFixed(2)})` } }, seconds(r[key][s])) });
	return [h("h3", {}, "Heat map by line"), table([
		{ name: "line", text: true, mono: true, get: (r) => file(r) + ":" + String(P.lines[r.line][2]).padStart(7, "0"),
			show: (r) => h("span", { class: "text mono", title: clean(file(r)) }, (file(r).startsWith(common) ? file(r).slice(common.length) : file(r)) + (P.lines[r.line][2] ? ":" + P.lines[r.line][2] : "")) },
		{ name: "function", text: true, mono: true, get: (r) => P.lines[r.line][0], show: (r) => text(P.lines[r.line][0], "mono") },
		heat("running", "here", 0), heat("with what it calls", "all", 0), heat("asleep", "here", 1), heat("with what it calls", "all", 1)], rows, { id: "heat-table" }),
	h("p", { class: "note" }, "Lines of the job's own code in their order", common.length > 1 && [" (in ", text(common, "mono"), ")"], "; time in libraries counts for the line that called them.",
		left > 0 && " " + count(left) + " with less time are left out.")];
}

/* ---- the section ------------------------------------------------------------------ */

function stacks(P) {
	if (!P || !P.groups.length) return null;
	let byLine = true, state = "running";
	let group = P.groups.find((g) => g.who === "workers") || P.groups[0];
	const flame = Flame(P, () => byLine), heat = h("div"), note = h("p", { class: "note" }), buttons = [];
	function button(label, on, act) {
		const b = h("button", { type: "button", onclick: () => { act(); apply(); } }, label);
		buttons.push([b, on]);
		return b;
	}
	function apply() {
		const side = group[state];
		for (const [b, on] of buttons) b.setAttribute("aria-pressed", on() ? "true" : "false");
		flame.graph.setAttribute("aria-label", WHO[group.who] + ", " + state + ": flame graph. Arrow keys choose a function, Enter shows it alone, Escape all.");
		flame.show(side, WHO[group.who] + ", " + state + ": " + seconds(side.seconds - side.unseen) + (group.threads > 1 ? " of " + count(group.threads) + " threads" : ""));
		note.textContent = (state === "running" ? "CPU time, and time ready for a core, divided by the samples of each stack." : "A sleep in which a sample was taken counts in full for its stack; other sleeps for the same are divided likewise.") +
			(side.unseen >= .01 * side.seconds && side.seconds > 0 ? " Of " + seconds(side.unseen) + " more no sample tells anything." : "") +
			(P.from > .1 * D.capture.duration ? " Samples from " + seconds(P.from) + " after the capture's begin on." : "");
		heat.replaceChildren(...(heatMap(P, group) || []));
	}
	const section_ = section("stacks", "Stacks of Python",
		h("div", { class: "tools" }, P.groups.map((g) => button(WHO[g.who], () => group === g, () => { group = g; })), h("span", { class: "grow" }),
			button("Running", () => state === "running", () => { state = "running"; }), button("Asleep", () => state === "asleep", () => { state = "asleep"; }), h("span", { class: "grow" }),
			button("By line", () => byLine, () => { byLine = true; }), button("By function", () => !byLine, () => { byLine = false; })),
		h("div", { class: "flamebox" }, flame.graph), flame.said,
		h("ul", { class: "legend" }, h("li", {}, h("i", { class: "swatch frame ours" }), "the job's own code"), h("li", {}, h("i", { class: "swatch frame theirs" }), "libraries"), h("li", {}, "callers above, called functions below; click to enlarge")),
		note, heat);
	apply();
	return section_;
}
