/* Lanes as they come packed, and the moments on them. */

/* Pieces of one level: ends, a category each, or -1 - where the mix begins. */
function decode(packed, scale) {
	const r = reader(unbase64(packed)), end = [], cat = [], mix = [];
	let at = 0;
	while (r.more()) {
		at += r.number();
		const b = r.byte();
		end.push(at * scale);
		if (b < 128) {
			cat.push(b);
		} else {
			cat.push(-1 - mix.length);
			const parts = [];
			for (let i = 0; i < b - 128; i++) parts.push(r.byte(), r.byte() / 255);
			mix.push(parts);
		}
	}
	return { end: Float64Array.from(end), cat: Int32Array.from(cat), mix };
}
function firstAfter(a, t) { /* index of the first end above t */
	let lo = 0, hi = a.length;
	while (lo < hi) { const m = lo + hi >> 1; if (a[m] > t) hi = m; else lo = m + 1; }
	return lo;
}

function niceStep(span, n) {
	const raw = span / n, p = Math.pow(10, Math.floor(Math.log10(raw)));
	return p * [1, 2, 5, 10].find((m) => p * m >= raw);
}

function lowerBound(a, t) {
	let lo = 0, hi = a.length;
	while (lo < hi) { const m = lo + hi >> 1; if (a[m] < t) lo = m + 1; else hi = m; }
	return lo;
}
/* A moment, with as many digits as `step` needs. Both in us. */
function clock(us, step) {
	const unit = step >= 2e3 || us === 0 || us >= 1e6 ? [1e6, " s"] : [1e3, " ms"];
	const d = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / unit[0]) - 1e-9)));
	return digits(us / unit[0], d) + unit[1];
}
