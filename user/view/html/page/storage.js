/* The page of one capture: files, and what lies behind them. */

const share = (p, name) => ({ name: name || p, unit: "share", get: (e) => e[p], path: p });
const col = (p, unit, name) => ({ name: name || p, unit, get: (e) => e[p], path: p });
/* A column of text that may lack; columns that nothing is known of are left out. */
const label = (p, name) => ({ name: name || p, text: true, maybe: true, get: (e) => e[p], show: (e) => known(e[p]) ? text(String(e[p])) : "" });
const deep = (p, q, unit, name) => ({ name, unit, get: (e) => e[p] ? e[p][q] : null, path: p + "." + q });
const lonely = (rows, cols) => cols.filter((c) => c.text && !c.maybe && c.name !== "order" || rows.some((r) => known(c.get(r))));
function files() {
	const f = D.files || [], i = limitOf("reads");
	const why = i >= 0 && h("p", { class: "note" }, text(LIMITS[i].reason), " ", h("a", { href: "#limit-" + (i + 1) }, "limit " + (i + 1)));
	if (!f.length) return section("files", "Files", h("p", {}, "No single file read was seen in this capture."), why);
	const cols = lonely(f, [{ name: "file", text: true, mono: true, get: (e) => e.path, show: (e) => known(e.path) ? text(e.path, "mono") : h("span", { class: "unknown" }, "no name, inode " + clean(e.inode)) },
		label("fs", "file system"), label("device"),
		col("reads", "count"), col("bytes", "bytes", "read"), col("fetched_bytes", "bytes", "from storage"), col("reread_bytes", "bytes", "read again"),
		col("read_s", "s", "time in reads"), col("blocked_s", "s", "blocked"), col("p99_ms", "ms", "p99"), share("cached_share", "cached"),
		{ name: "order", text: true, get: (e) => e.pattern ? e.pattern.kind : null, show: (e) => e.pattern && known(e.pattern.kind) ? word(e.pattern.kind) : "" },
		col("faults", "count", "page faults"), col("fault_bytes", "bytes", "by faults"), col("fault_s", "s", "in faults"), col("opens", "count")]);
	return section("files", "Files", table(cols, f, { path: "files", id: "files-table", first: 15 }), why);
}

function disks() {
	const d = D.disks || [];
	return d.length ? section("disks", "Disks", table(lonely(d, [{ name: "device", text: true, mono: true, get: (e) => e.name }, label("kind"), label("model"),
		col("reads", "count"), col("read_bytes", "bytes", "read"), deep("read_latency_ms", "p50", "ms", "read p50"), deep("read_latency_ms", "p99", "ms", "read p99"),
		col("writes", "count"), col("write_bytes", "bytes", "written"), deep("write_latency_ms", "p50", "ms", "write p50"), deep("queue_depth", "mean", "plain", "queue, mean"),
		share("target_share", "of the machine's"), deep("machine", "busy_share", "share", "device busy"), col("failed", "count")]), d, { path: "disks", id: "disks-table", first: 15 }),
		h("p", { class: "note" }, "Requests of this job to the device, but for \u201cdevice busy\u201d, which counts all jobs'.")) : null;
}
function writes() {
	const w = D.writes || [];
	return w.length ? section("writes", "Writes", table(lonely(w, [{ name: "file", text: true, mono: true, get: (e) => e.path }, label("fs", "file system"), label("device"),
		{ name: "by", text: true, get: (e) => e.pid, show: (e) => known(e.pid) ? nameOfPid(e.pid) : "" }, col("calls", "count"), col("bytes", "bytes", "written"),
		col("write_s", "s", "in writes"), col("fsyncs", "count", "syncs"), col("fsync_s", "s", "in syncs"), col("blocked_s", "s", "asleep")]), w, { path: "writes", id: "writes-table", first: 15 })) : null;
}
function peers() {
	const p = D.peers || [];
	return p.length ? section("peers", "Network peers", table(lonely(p, [{ name: "address", text: true, mono: true, get: (e) => e.address,
		show: (e) => text((e.address || "") + (known(e.port) ? (/:/.test(e.address || "") ? " port " : ":") + e.port : ""), "mono") }, label("protocol"),
		col("data_wait_s", "s", "data wait"), col("wait_s", "s", "all waits"), share("first_byte_share", "until the first byte"), deep("first_byte_ms", "p50", "ms", "first byte p50"),
		deep("first_byte_ms", "p99", "ms", "p99"), col("bytes", "bytes", "received"), col("rate_bps", "bytes_s", "rate"), col("connections", "count"), col("opened", "count"),
		col("round_trip_ms", "ms", "round trip"), col("retransmits", "count", "sent again"), col("workers", "count")]), p, { path: "peers", id: "peers-table", first: 15 })) : null;
}
/* Where time went, by line of the job's Python. */
function lines() {
	const l = D.lines || [];
	return l.length ? section("lines", "Lines of Python", table(lonely(l, [
		{ name: "who", text: true, get: (e) => e.who === "trainer" ? "training thread" : known(e.pid) ? "worker " + e.pid : "all workers" },
		{ name: "doing", text: true, get: (e) => (e.cause === "cpu" ? "running" : e.cause === "sync" ? "in GPU calls" : "asleep: " + word(e.cause)) + (e.data_wait ? ", data wait" : "") },
		{ name: "function", text: true, mono: true, wide: true, get: (e) => e.function, show: (e) => text(e.function, "mono") },
		{ name: "line", text: true, mono: true, get: (e) => e.file, show: (e) => text(e.file + (known(e.line) ? ":" + e.line : ""), "mono") },
		share("share", "of that"), col("seconds", "s"), col("low_s", "s", "at least"), col("high_s", "s", "at most"), col("looks", "count")]), l, { path: "lines", id: "lines-table", first: 15 }),
		h("p", { class: "note" }, "The innermost line of the job's own code. A sleep in which a sample was taken counts in full for its line; CPU time is divided by the samples.")) : null;
}
/* Parts of the capture that were judged each by itself. */
function windows() {
	const w = D.windows || [];
	return w.length ? section("windows", "Windows", h("p", {}, "The rest of this page shows the marked window."), table(lonely(w, [
		col("at", "s", "from"), col("duration", "s"), col("steps", "count"), col("step_ms", "ms", "step"), col("step_p95_ms", "ms", "p95"), share("data_wait_share", "data wait"),
		share("starved_share", "GPU idle waiting for data"), share("gpu_busy_share", "GPU busy"),
		{ name: "verdicts", text: true, get: (e) => (e.verdicts || []).join(", ") }, { name: "", text: true, fixed: true, get: (e) => e.reported ? "this page" : "" }]), w, { path: "windows", id: "windows-table", first: 20 })) : null;
}
function memory() {
	const m = D.memory || {}, w = m.working_set;
	if (!known(m.total) && !w) return null;
	const range = w && w.whole && known(w.whole[0]) && [" · working set ", fig("memory.working_set.whole.0", "bytes"), " to ", fig("memory.working_set.whole.1", "bytes"),
		known(w.fits) && (w.fits ? ", which fits" : ", which does not fit")];
	return h("p", {}, "Memory of the machine ", fig("memory.total", "bytes"), ", available ", fig("memory.available", "bytes"), " · page cache ", fig("memory.cache", "bytes"),
		known(m.limit) && [" · limit of the control group ", fig("memory.limit", "bytes")], known(m.room) && [" · room for files ", fig("memory.room", "bytes")], range);
}
