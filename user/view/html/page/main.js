/* Which page it is, and the theme. */

function main() {
	const dark = window.matchMedia("(prefers-color-scheme: dark)");
	let chosen = null, printing = false, page = null;
	const button = h("button", { type: "button", id: "theme", onclick: () => { chosen = theme() === "dark" ? "light" : "dark"; apply(); } });
	const theme = () => printing ? "light" : chosen || (dark.matches ? "dark" : "light");
	function apply() {
		document.documentElement.dataset.theme = theme();
		button.textContent = theme() === "dark" ? "☀ Light" : "☾ Dark";
		button.setAttribute("aria-label", "Switch to the " + (theme() === "dark" ? "light" : "dark") + " theme");
		if (!page) return;
		drawPlots();
		page.draw();
	}
	dark.addEventListener("change", apply);
	window.matchMedia("print").addEventListener("change", (e) => { printing = e.matches; apply(); });
	apply();
	const C = data("diff");
	if (!C) D = data("report");
	const made = C ? diffPage(C) : reportPage(data("timeline"));
	const wrap = h("div", { class: "wrap" }, made.parts);
	const nav = h("nav", { "aria-label": "Parts of the page" }, made.nav.filter(([id]) => wrap.querySelector("#" + id)).map(([id, label]) => h("a", { href: "#" + id }, label)));
	document.getElementById("page").replaceChildren(h("header", { class: "bar" }, h("span", { class: "name" }, "pipetrace"), nav, button), wrap);
	page = made;
	apply();
	/* A link to a verdict (#slow_worker), to a part of the timeline (#12s..14.5s) or to one
	 * of the page. What it leads to was not there when the browser looked for it. */
	function jump() {
		const to = location.hash.slice(1), part = /^([\d.]+)s\.\.([\d.]+)s$/.exec(to);
		const card = [...document.querySelectorAll("article.verdict")].find((e) => to && e.dataset.id === to);
		const at = part ? document.getElementById("timeline") : card || document.getElementById(to);
		if (part) page.show(+part[1] * 1e6, +part[2] * 1e6);
		if (at) at.scrollIntoView();
	}
	window.addEventListener("hashchange", jump);
	jump();
	document.documentElement.dataset.ready = Math.round(performance.now());
}
main();
