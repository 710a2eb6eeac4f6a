/* The timeline: lanes of pieces on a canvas, zoomed and moved by mouse, touch and
 * keys. Times are microseconds since the begin of the capture. */

function Timeline(T, steps) {
	const names = T.categories, cause0 = T.first_cause, full = T.duration_us, MIN = 20;
	const nameOf = (c) => names[c];
	const lanes = T.lanes.map((l) => Object.assign({}, l));
	const several = T.trainers.length > 1;
	let view = [0, full], selected = 0, picked = null, arrows = true, hover = null, width = 0, queued = false;
	const canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", id: "timeline-canvas",
		"aria-label": "Timeline. Arrow left and right move, plus and minus zoom, arrow up and down choose a lane, " +
			"N and P go to the next and the previous wait for data, 0 shows all." });
	const range = h("output", { id: "range", "aria-live": "off" });
	const readout = h("div", { class: "readout", id: "readout", role: "status", "aria-live": "polite" });
	const ctx = canvas.getContext("2d");

	/* ---- what the lanes are ---- */
	function label(l) {
		if (l.kind === "disk") return ["Disk", "threads that wait"];
		if (l.kind === "cpu") return ["CPU", "cores in use"];
		const of = several && T.trainers[l.trainer] ? " " + T.trainers[l.trainer].pid : "";
		if (l.kind === "gpu") return ["GPU" + of, ""];
		if (l.kind === "wait") return ["Data wait" + of, ""];
		if (l.kind === "steps") return ["Steps" + of, ""];
		return [(l.role || "thread") + " " + l.tid, clean(l.name || "")];
	}
	const rank = { disk: 0, cpu: 1, gpu: 2, wait: 3, steps: 4, thread: 5 };
	const big = (l) => rank[l.kind] < 3;
	lanes.forEach((l, i) => { l.at = i; });
	const group = (l) => big(l) && l.trainer === null ? -2 : l.trainer === null ? 1e9 : T.trainers[l.trainer].top ? -1 : l.trainer;
	lanes.sort((a, b) => group(a) - group(b) || rank[a.kind] - rank[b.kind] || a.at - b.at);
	for (const l of lanes) {
		l.detail = decode(l.detail || "", 1);
		l.coarse = decode(l.coarse || "", full / T.coarse_buckets);
		l.feeds = [];
	}
	/* who fed whom: wait begin, end, made, worker's lane */
	const waits = [];
	T.trainers.forEach((t, ti) => {
		const r = reader(unbase64(t.feeds || ""));
		let at = 0;
		while (r.more()) {
			at += r.number();
			const len = r.number(), made = r.number(), w = r.number() - 1;
			waits.push({ trainer: ti, begin: at, end: at + len, made: made ? Math.max(0, at + len - made + 1) : null,
				lane: lanes.findIndex((l) => l.kind === "thread" && l.trainer === ti && l.worker === w),
				wait: lanes.findIndex((l) => l.kind === "wait" && l.trainer === ti) });
		}
	});
	waits.sort((a, b) => a.end - b.end);
	const waitEnds = Float64Array.from(waits, (w) => w.end);

	/* ---- geometry ---- */
	const AXIS = 22, MAP = 20;
	const left = () => width < 620 ? 106 : 178;
	const heightOf = (l) => big(l) ? 34 : l.kind === "steps" ? 16 : 22;
	let tops = [], height = 0;
	function layout() {
		let y = MAP + AXIS + 6;
		tops = lanes.map((l, i) => {
			if (i && (l.kind === "gpu" && l.trainer !== null && several || rank[l.kind] === 5 && rank[lanes[i - 1].kind] < 5 || lanes[i - 1].trainer !== l.trainer && i > 2)) y += 7;
			const top = y;
			y += heightOf(l) + 4;
			return top;
		});
		height = y + 6;
	}
	const xOf = (t) => left() + (t - view[0]) / (view[1] - view[0]) * (width - left() - 8);
	const tOf = (x) => view[0] + (x - left()) / (width - left() - 8) * (view[1] - view[0]);
	function setView(a, b) {
		let span = Math.min(Math.max(b - a, Math.min(MIN, full)), full);
		a = Math.min(Math.max((a + b - span) / 2, 0), full - span);
		view = [a, a + span];
		draw();
	}
	function zoom(f, t) {
		if (t === undefined) t = (view[0] + view[1]) / 2;
		const span = Math.min(Math.max((view[1] - view[0]) * f, Math.min(MIN, full)), full), k = (t - view[0]) / (view[1] - view[0]);
		setView(t - k * span, t + (1 - k) * span);
	}
	const pan = (d) => { const s = view[1] - view[0]; const a = Math.min(Math.max(view[0] + d, 0), full - s); setView(a, a + s); };

	/* ---- drawing ---- */
	function levelOf(l) {
		const i = firstAfter(l.detail.end, view[0]), j = firstAfter(l.detail.end, view[1]);
		const bucket = (width - left()) * full / T.coarse_buckets / (view[1] - view[0]);
		return j - i > 4000 && bucket <= 1.7 ? l.coarse : l.detail;
	}
	/* to whole pixels of the screen: no seams between neighbours */
	const snap = (x) => { const r = window.devicePixelRatio || 1; return Math.round(x * r) / r; };
	function bars(x, w, y, hgt, parts) {
		let at = y + hgt;
		for (const [c, s] of parts) {
			if (!c) continue;
			const p = s * hgt;
			ctx.fillStyle = fillOf(ctx, nameOf(c));
			ctx.fillRect(x, at - p, w, p);
			at -= p;
		}
	}
	function drawLane(l, y, hgt) {
		const v = levelOf(l), end = v.end, x1 = width - 8;
		const add = (c, s) => acc.set(c, (acc.get(c) || 0) + s);
		let i = firstAfter(end, view[0]), x = left(), col = Math.floor(x), acc = new Map(), filled = 0;
		function flushColumn() { /* what is narrower than a pixel, by its share of it */
			const all = Math.max(.5, filled);
			if (acc.size) bars(col, 1, y, hgt, [...acc].sort((a, b) => a[0] - b[0]).map(([c, s]) => [c, s / all]));
			acc = new Map();
			filled = 0;
		}
		for (; i < end.length && x < x1; i++) {
			let to = Math.max(x, Math.min(xOf(end[i]), x1)); /* x may be rounded */
			const c = v.cat[i];
			const parts = c >= 0 ? null : v.mix[-1 - c];
			if (to - x >= 1) {
				flushColumn();
				x = snap(x);
				to = snap(to);
				if (c > 0) { ctx.fillStyle = fillOf(ctx, nameOf(c)); ctx.fillRect(x, y, to - x, hgt); }
				if (parts) bars(x, to - x, y, hgt, pairs(parts));
				col = Math.floor(to);
			} else {
				if (Math.floor(x) !== col) { flushColumn(); col = Math.floor(x); }
				filled += to - x;
				if (c > 0) add(c, to - x);
				if (parts) for (let k = 0; k < parts.length; k += 2) add(parts[k], (to - x) * parts[k + 1]);
			}
			x = to;
		}
		flushColumn();
	}
	const pairs = (p) => { const o = []; for (let k = 0; k < p.length; k += 2) o.push([p[k], p[k + 1]]); return o; };
	function fitText(s, w) {
		if (ctx.measureText(s).width <= w) return s;
		let n = s.length;
		while (n > 1 && ctx.measureText(s.slice(0, n) + "…").width > w) n--;
		return s.slice(0, n) + "…";
	}
	function drawLabel(l, i, y, hgt) {
		const [name, more] = label(l), mark = i === selected && document.activeElement === canvas;
		ctx.fillStyle = mark ? css("--accent") : css("--ink");
		ctx.font = (mark ? "700" : "600") + " 12px system-ui, 'DejaVu Sans', sans-serif";
		const two = big(l) && more, n = fitText(name, left() - 14);
		ctx.fillText(n, 8, y + (two ? hgt / 2 - 3 : hgt / 2 + 4));
		ctx.fillStyle = css("--soft");
		ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
		if (two) ctx.fillText(fitText(more, left() - 14), 8, y + hgt / 2 + 11);
		else if (more && left() > 120) {
			const at = 8 + ctx.measureText(n).width * 1.16 + 8;
			if (left() - at > 30) ctx.fillText(fitText(more, left() - at - 6), at, y + hgt / 2 + 4);
		}
	}
	function drawAxis() {
		const step = niceStep(view[1] - view[0], Math.max(3, (width - left()) / 110));
		ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
		ctx.strokeStyle = css("--line");
		ctx.lineWidth = 1;
		for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
			const x = Math.round(xOf(t)) + .5, s = clock(t, step);
			ctx.beginPath();
			ctx.moveTo(x, MAP + AXIS);
			ctx.lineTo(x, height);
			ctx.stroke();
			ctx.fillStyle = css("--soft");
			if (x + ctx.measureText(s).width < width) ctx.fillText(s, x + 3, MAP + AXIS - 6);
		}
	}
	/* The whole capture, small, and what of it is shown. */
	function drawMap() {
		const l = lanes.find((e) => e.kind === "wait") || lanes.find((e) => e.kind === "gpu") || lanes[0];
		if (!l) return;
		const was = view, a = xOf2(was[0]), b = xOf2(was[1]);
		view = [0, full];
		drawLane(l, 3, MAP - 6);
		view = was;
		ctx.fillStyle = css("--bg");
		ctx.globalAlpha = .72;
		ctx.fillRect(left(), 2, a - left(), MAP - 4);
		ctx.fillRect(b, 2, width - 8 - b, MAP - 4);
		ctx.globalAlpha = 1;
		ctx.strokeStyle = css("--accent");
		ctx.lineWidth = 2;
		ctx.strokeRect(a, 2, Math.max(b - a, 3), MAP - 4);
		ctx.fillStyle = css("--soft");
		ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
		ctx.fillText("All · " + (l.kind === "wait" ? "data wait" : label(l)[0]), 8, MAP - 6);
	}
	const xOf2 = (t) => left() + t / full * (width - left() - 8);
	function drawSteps() {
		if (!steps || steps.per > 1) return;
		let i = lowerBound(steps.begin, view[0]), j = lowerBound(steps.begin, view[1]);
		if (j - i > (width - left()) / 14) return;
		const at = lanes.findIndex((l) => l.kind === "steps" && T.trainers[l.trainer].top);
		ctx.strokeStyle = css("--ink");
		ctx.lineWidth = 1;
		for (; i < j; i++) {
			const x = Math.round(xOf(steps.begin[i])) + .5;
			ctx.globalAlpha = .3;
			ctx.setLineDash([2, 3]);
			ctx.beginPath();
			ctx.moveTo(x, MAP + AXIS + 4);
			ctx.lineTo(x, height - 4);
			ctx.stroke();
			ctx.setLineDash([]);
			ctx.globalAlpha = 1;
			const next = i + 1 < steps.begin.length ? xOf(steps.begin[i + 1]) : width;
			if (at >= 0 && next - x > 34) {
				ctx.fillStyle = "#14171b";
				ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
				ctx.fillText(fitText("#" + (steps.first + i), next - x - 6), x + 4, tops[at] + 12);
			}
		}
	}
	function drawFeed(w, strong) {
		if (w.made === null || w.lane < 0 || w.wait < 0) return;
		const x0 = xOf(w.made), x1 = xOf(w.end), y0 = tops[w.lane] + heightOf(lanes[w.lane]) / 2, y1 = tops[w.wait] + heightOf(lanes[w.wait]);
		ctx.strokeStyle = ctx.fillStyle = strong ? css("--accent") : css("--ink");
		ctx.lineWidth = strong ? 2.5 : 1;
		ctx.globalAlpha = strong ? 1 : .55;
		ctx.beginPath();
		ctx.moveTo(x0, y0);
		ctx.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1 + 4);
		ctx.stroke();
		ctx.beginPath();
		ctx.moveTo(x1, y1);
		ctx.lineTo(x1 - 4, y1 + 7);
		ctx.lineTo(x1 + 4, y1 + 7);
		ctx.fill();
		ctx.beginPath();
		ctx.arc(x0, y0, strong ? 4 : 2.5, 0, 7);
		ctx.fill();
		if (strong) {
			ctx.strokeRect(left() + .5, tops[w.lane] - 1.5, width - left() - 9, heightOf(lanes[w.lane]) + 3);
			const a = Math.max(xOf(w.begin), left()), b = Math.min(x1, width - 8);
			ctx.strokeRect(a, tops[w.wait] - 1.5, Math.max(b - a, 2), heightOf(lanes[w.wait]) + 3);
		}
		ctx.globalAlpha = 1;
	}
	function drawFeeds() {
		const i = firstAfter(waitEnds, view[0]), j = firstAfter(waitEnds, view[1]);
		if (arrows && j - i <= 60) for (let k = i; k < j; k++) if (waits[k].end - waits[k].begin > (view[1] - view[0]) / 500) drawFeed(waits[k], false);
		if (picked && picked.end >= view[0] && picked.begin <= view[1]) drawFeed(picked, true);
	}
	function paint() {
		queued = false;
		const ratio = window.devicePixelRatio || 1, w = canvas.parentElement ? canvas.parentElement.clientWidth : 0;
		if (!w) return;
		if (w !== width || canvas.height !== Math.round(height * ratio) || canvas.width !== Math.round(w * ratio)) {
			width = w;
			layout();
			canvas.width = Math.round(w * ratio);
			canvas.height = Math.round(height * ratio);
			canvas.style.height = height + "px";
		}
		ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
		ctx.clearRect(0, 0, width, height);
		ctx.fillStyle = css("--card");
		ctx.fillRect(0, 0, width, height);
		drawAxis();
		lanes.forEach((l, i) => {
			const y = tops[i], hgt = heightOf(l);
			ctx.fillStyle = css("--shade");
			ctx.fillRect(left(), y, width - left() - 8, hgt);
			drawLane(l, y, hgt);
			drawLabel(l, i, y, hgt);
		});
		ctx.save();
		ctx.beginPath();
		ctx.rect(left(), 0, width - left(), height);
		ctx.clip();
		drawSteps();
		drawFeeds();
		if (hover !== null) {
			ctx.fillStyle = css("--accent");
			ctx.fillRect(xOf(hover) - .5, MAP + AXIS, 1, height);
		}
		ctx.restore();
		drawMap();
		range.textContent = clock(view[0], (view[1] - view[0]) / 200) + " – " + clock(view[1], (view[1] - view[0]) / 200) +
			" · " + seconds((view[1] - view[0]) / 1e6) + " of " + seconds(full / 1e6);
		canvas.dataset.begin = view[0];
		canvas.dataset.end = view[1];
	}
	function draw() {
		if (queued) return;
		queued = true;
		requestAnimationFrame(paint);
	}

	/* ---- what is under the pointer; what a lane was in what is shown ---- */
	function share(l) {
		const v = levelOf(l), sum = new Map(), end = v.end;
		let at = view[0];
		for (let i = firstAfter(end, view[0]); i < end.length && at < view[1]; i++) {
			const to = Math.min(end[i], view[1]), c = v.cat[i];
			const parts = c >= 0 ? [c, 1] : v.mix[-1 - c];
			for (let k = 0; k < parts.length; k += 2) if (parts[k]) sum.set(parts[k], (sum.get(parts[k]) || 0) + (to - at) * parts[k + 1]);
			at = to;
		}
		return [...sum].sort((a, b) => b[1] - a[1]).map(([c, s]) => [c, s / (view[1] - view[0])]);
	}
	function said(l, parts) {
		if (!parts.length) return { wait: "no wait for data", disk: "no thread waits for storage", cpu: "no thread runs", steps: "no step" }[l.kind] || "not known";
		return parts.map(([c, s]) => l.scale ? nameWord(c) + " " + three(s * l.scale) + " of " + three(l.scale) :
			nameWord(c) + (s < .995 ? " " + percent(s) : "")).join(" · ");
	}
	const nameWord = (c) => c >= cause0 ? "waits for data: " + word(nameOf(c)) : nameOf(c).startsWith("step_") ? "in a step" : word(nameOf(c));
	function tellLane() {
		const l = lanes[selected];
		if (l) readout.replaceChildren(h("b", {}, label(l).join(" ")), " in what is shown: " + said(l, share(l)));
	}
	function tellAt(i, t) {
		const l = lanes[i], v = l.detail, k = firstAfter(v.end, t);
		if (k >= v.end.length) return;
		const from = k ? v.end[k - 1] : 0, c = v.cat[k];
		const parts = c === 0 ? [] : c > 0 ? [[c, 1]] : pairs(v.mix[-1 - c]);
		readout.replaceChildren(h("b", {}, label(l).join(" ")), " at " + clock(t, 1) + ": " + said(l, parts) +
			" · " + seconds((v.end[k] - from) / 1e6) + (c < 0 ? ", short ones put together" : ""));
	}
	function tellWait(w) {
		const l = lanes[w.lane];
		readout.replaceChildren(h("b", {}, "Wait for data"), " of " + seconds((w.end - w.begin) / 1e6) + " at " + clock(w.begin, 1) +
			" · delivered by " + (l ? label(l)[0] : "a worker without a lane") +
			(w.made === null ? "" : ", which had made the batch " + seconds((w.end - w.made) / 1e6) + " before the wait ended"));
	}
	const laneAt = (y) => tops.findIndex((t, i) => y >= t && y < t + heightOf(lanes[i]) + 4);
	function pick(w) {
		picked = w;
		if (w) tellWait(w);
		draw();
	}
	function go(d) { /* to the next or previous wait that can be seen well */
		if (!waits.length) return;
		const mid = picked ? picked.end : (view[0] + view[1]) / 2;
		let i = firstAfter(waitEnds, mid);
		if (d < 0) { i -= 1; if (picked && i >= 0 && waits[i] === picked) i -= 1; }
		const w = waits[Math.min(Math.max(i, 0), waits.length - 1)], span = view[1] - view[0];
		if (w.begin < view[0] || w.end > view[1]) setView((w.begin + w.end) / 2 - span / 2, (w.begin + w.end) / 2 + span / 2);
		pick(w);
	}

	/* ---- mouse, touch, keys ---- */
	const pointers = new Map();
	let drag = null;
	const local = (e) => { const b = canvas.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
	canvas.addEventListener("wheel", (e) => {
		const [x] = local(e);
		if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
			e.preventDefault();
			pan(e.deltaX / (width - left()) * (view[1] - view[0]));
		} else if (e.ctrlKey || e.metaKey || document.activeElement === canvas) {
			e.preventDefault();
			zoom(Math.pow(1.0016, Math.max(-600, Math.min(600, e.deltaY))), Math.min(Math.max(tOf(x), view[0]), view[1]));
		}
	}, { passive: false });
	canvas.addEventListener("pointerdown", (e) => {
		const [x, y] = local(e);
		pointers.set(e.pointerId, x);
		canvas.setPointerCapture(e.pointerId);
		canvas.focus({ preventScroll: true });
		drag = { x, y, view: view.slice(), map: y < MAP, moved: false, select: e.shiftKey ? x : null };
		canvas.classList.add("drag");
		if (drag.map) toMap(x);
	});
	function toMap(x) {
		const t = (x - left()) / (width - left() - 8) * full, s = (view[1] - view[0]) / 2;
		pan(t - s - view[0]);
	}
	canvas.addEventListener("pointermove", (e) => {
		const [x, y] = local(e);
		if (drag && pointers.has(e.pointerId)) {
			if (pointers.size === 2) {
				const [a, b] = [...pointers.values()], was = Math.abs(a - b);
				pointers.set(e.pointerId, x);
				const [c, d] = [...pointers.values()], now = Math.abs(c - d);
				if (was > 8 && now > 8) zoom(was / now, tOf((c + d) / 2));
				drag.moved = true;
				return;
			}
			pointers.set(e.pointerId, x);
			if (Math.abs(x - drag.x) > 3) drag.moved = true;
			if (drag.map) toMap(x);
			else if (drag.select !== null) hover = tOf(x);
			else if (drag.moved) {
				const d = (drag.x - x) / (width - left() - 8) * (drag.view[1] - drag.view[0]), s = drag.view[1] - drag.view[0];
				const a = Math.min(Math.max(drag.view[0] + d, 0), full - s);
				setView(a, a + s);
			}
			return;
		}
		const i = laneAt(y);
		hover = x > left() ? tOf(x) : null;
		if (i >= 0 && hover !== null) tellAt(i, hover);
		draw();
	});
	function up(e) {
		const [x, y] = local(e), was = drag;
		pointers.delete(e.pointerId);
		if (pointers.size || !was) return;
		drag = null;
		canvas.classList.remove("drag");
		if (was.select !== null && Math.abs(x - was.select) > 4) {
			setView(tOf(Math.min(x, was.select)), tOf(Math.max(x, was.select)));
		} else if (!was.moved && !was.map) {
			const i = laneAt(y), t = tOf(x);
			if (i >= 0) selected = i;
			const slack = 4 * (view[1] - view[0]) / width, k = firstAfter(waitEnds, t - slack);
			const hit = i >= 0 && (lanes[i].kind === "wait" || lanes[i].kind === "steps") && waits.slice(k, k + 3).find((w) => w.begin - slack <= t);
			pick(hit || null);
			if (!hit && i >= 0 && x > left()) tellAt(i, t);
		}
		draw();
	}
	canvas.addEventListener("pointerup", up);
	canvas.addEventListener("pointercancel", (e) => { pointers.delete(e.pointerId); if (!pointers.size) drag = null; });
	canvas.addEventListener("pointerleave", () => { hover = null; draw(); });
	canvas.addEventListener("dblclick", (e) => zoom(e.shiftKey ? 4 : .25, tOf(local(e)[0])));
	canvas.addEventListener("focus", draw);
	canvas.addEventListener("blur", draw);
	canvas.addEventListener("keydown", (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		const span = view[1] - view[0], far = e.shiftKey ? .9 : .15;
		const keys = {
			ArrowLeft: () => pan(-span * far), ArrowRight: () => pan(span * far),
			ArrowUp: () => { selected = Math.max(0, selected - 1); tellLane(); draw(); },
			ArrowDown: () => { selected = Math.min(lanes.length - 1, selected + 1); tellLane(); draw(); },
			"+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), "_": () => zoom(1 / .6),
			PageUp: () => pan(-span * .9), PageDown: () => pan(span * .9),
			Home: () => pan(-full), End: () => pan(full), "0": () => setView(0, full),
			n: () => go(1), N: () => go(1), p: () => go(-1), P: () => go(-1), Escape: () => pick(null),
		};
		if (!keys[e.key]) return;
		e.preventDefault();
		keys[e.key]();
	});
	new ResizeObserver(draw).observe(canvas);
	window.addEventListener("resize", draw);

	/* ---- around it ---- */
	const used = new Set();
	for (const l of lanes) for (const v of [l.coarse]) {
		for (const c of v.cat) if (c > 0) used.add(c);
		for (const m of v.mix) for (let k = 0; k < m.length; k += 2) used.add(m[k]);
	}
	const legendNames = [];
	for (const c of [...used].sort((a, b) => a - b)) {
		const n = nameOf(c);
		if (!n.startsWith("step_") && !legendNames.some(([m]) => cssLook(m) === cssLook(n))) legendNames.push([n, n === "running" ? "running, GPU busy" : c >= cause0 ? "wait for data: " + word(n) : word(n)]);
	}
	const coarsest = Math.max(0, ...lanes.filter((l) => l.kind === "thread").map((l) => l.resolution_us || 0));
	readout.textContent = "Point at a lane to read what was going on there.";
	const b = (t, f, name) => h("button", { type: "button", onclick: f, "aria-label": name, title: name }, t);
	const arrowButton = h("button", { type: "button", "aria-pressed": "true", onclick: () => {
		arrows = !arrows;
		arrowButton.setAttribute("aria-pressed", arrows);
		draw();
	} }, "Deliveries");
	layout();
	return {
		draw, show: (a, b) => { if (a < b) setView(a, b); },
		element: h("div", {},
			h("div", { class: "tools" },
				b("+", () => zoom(.5), "Zoom in"), b("−", () => zoom(2), "Zoom out"), b("◀", () => pan(-(view[1] - view[0]) / 3), "Earlier"),
				b("▶", () => pan((view[1] - view[0]) / 3), "Later"), b("All", () => setView(0, full), "Show all"),
				waits.length > 0 && [b("‹ wait", () => go(-1), "Previous wait for data"), b("wait ›", () => go(1), "Next wait for data"), arrowButton],
				h("span", { class: "grow" }), range),
			h("div", { class: "timeline" }, canvas), readout,
			legend(legendNames),
			h("p", { class: "note hint" }, "Click the timeline, then scroll to zoom (or hold Ctrl and scroll). Drag to move, Shift and drag to zoom to a part, " +
				"double-click to zoom in. Keys: ← → move, + − zoom, ↑ ↓ choose a lane, N and P next and previous wait, 0 all. " +
				"Click a wait to see who delivered the batch. A link to a part: this page's address and #12s..14.5s."),
			coarsest > 1 && h("p", { class: "note" }, "So that this page stays small, what is shorter than " + seconds(coarsest / 1e6) +
				" is put together with its neighbours, by the share of time."),
			T.lanes_left_out > 0 && h("p", { class: "note" }, count(T.lanes_left_out) + " more threads are not drawn.")),
	};
}
