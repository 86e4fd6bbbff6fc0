// The script of every page: tables that sort and filter, charts, addresses of the dashboard, and the join of two nights.
// It asks for nothing but the files of the site. Every text of the data becomes a text node, never HTML.
"use strict";
const ROOT = document.documentElement.dataset.root;
const ABSENT = "\u2013";
const asked = new URLSearchParams(location.search);
const loaded = new Map();

function json(path) {
  if (!loaded.has(path)) loaded.set(path, fetch(ROOT + path).then(answer => answer.ok ? answer.json() : null));
  return loaded.get(path);
}

// An element with attributes and children; a child that is a text stays one.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== "" && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== "" && child != null));
  return element;
}

// ---- tables

const number = text => parseFloat(text.replace(/[\u2212]/g, "-").replace(/[^0-9.eE+-]/g, " ").trim().split(/\s+/)[0]);

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = make("button", {type: "button"}, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0], key = row => row.cells[place]?.dataset.value ?? row.cells[place]?.textContent ?? "";
      const isNumber = head.classList.contains("n");
      const compare = isNumber
        ? (a, b) => (isNaN(number(a)) ? Infinity : number(a)) - (isNaN(number(b)) ? Infinity : number(b)) || 0
        : (a, b) => a.localeCompare(b, undefined, {numeric: true});
      const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1));
      body.append(...rows);
    });
  });
}

function filtered(table) {
  const box = make("input", {type: "search", autocomplete: "off"});
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
  table.closest(".iw-scroll").before(make("div", {class: "pick"}, make("label", {}, "Filter by text", box)));
}

// ---- charts

let vega;
function library() {
  vega ??= new Promise((done, failed) => {
    const script = make("script", {src: ROOT + "static/vega.js", type: "module"});
    script.addEventListener("load", done);
    script.addEventListener("error", failed);
    document.head.append(script);
  });
  return vega;
}

const AXIS = {labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)",
  tickColor: "var(--line)"};
const LOOK = {background: null, font: "system-ui, sans-serif", axis: AXIS, view: {stroke: null},
  title: {color: "var(--ink)"}, legend: {labelColor: "var(--ink)", titleColor: "var(--ink)"}};

async function draw(figure) {
  const place = figure.querySelector(".vega");
  const [answer] = await Promise.all([fetch(figure.dataset.spec), library()]);
  const spec = await answer.json();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const sized = {...spec, width: "container", autosize: {type: "fit-x", contains: "padding"}};
  await window.vegaEmbed(place, sized, {actions: false, renderer: "svg", config: LOOK, tooltip: {theme: dark ? "dark" : "light"}});
  figure.dataset.drawn = "1";
}

function charts() {
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) {
      seen.unobserve(entry.target);
      draw(entry.target).catch(error => { entry.target.dataset.failed = String(error); });
    }
  }, {rootMargin: "200px"});
  document.querySelectorAll("figure.chart").forEach(figure => seen.observe(figure));
}

// ---- values, as analysis/present.py writes them

function value(metric, found, site) {
  if (found == null) return ABSENT;
  const unit = site.metrics[metric][1], digits = found >= 100 ? 1 : found >= 10 ? 2 : 3;
  if (unit === "ms") return `${found.toFixed(digits)}\u202fms`;
  if (unit === "J") return `${Number(found.toPrecision(3))}\u202fJ`;
  if (unit === "us") return `${found.toFixed(0)}\u202fus`;
  if (unit === "s") return `${found.toFixed(1)}\u202fs`;
  if (unit === "x") return `${found.toFixed(2)}\u00d7`;
  if (unit === "B") return found >= 1e9 ? `${(found / 1e9).toFixed(2)}\u202fGB`
    : found >= 1e6 ? `${(found / 1e6).toFixed(0)}\u202fMB` : `${Math.round(found).toLocaleString("en")}\u202fB`;
  return Number.isInteger(found) ? found.toLocaleString("en") : found.toFixed(3);
}

function percent(change) {
  if (change == null) return "";
  const rounded = Math.round(1000 * change) / 10, sign = rounded > 0 ? "+" : rounded < 0 ? "\u2212" : "\u00b1";
  return `${sign}${Math.abs(rounded).toFixed(1)}\u202f%`;
}

// ---- two nights

function nightOf(site, text) {
  if (!text) return null;
  const whole = site.nights.find(night => night.night === text || night.runs.includes(text));
  const [branch, sha] = text.includes("@") ? text.split(/@(?=[^@]*$)/) : ["", text];
  const ofCommit = night => sha.length >= 6 && night.commit.startsWith(sha) && (!branch || night.branch === branch);
  return whole ?? site.nights.find(ofCommit) ?? site.nights.find(night => night.branch === text || night.release === text)
    ?? (text === "latest" ? site.nights[0] : null);
}

const labelOf = night => [night.started, night.branch, night.release || night.commit.slice(0, 10), night.title, night.night].filter(Boolean).join(" \u00b7 ");

async function joinNights(site, base, new_) {
  const pair = `${base.file}..${new_.file}`;
  const [before, after, judged] = await Promise.all([
    json(`data/nights/${base.file}.json`), json(`data/nights/${new_.file}.json`),
    site.pairs.includes(pair) ? json(`data/pairs/${pair}.json`) : null]);
  const ids = new Set([...Object.keys(before.cells), ...Object.keys(after.cells)]);
  const names = Object.keys(site.metrics);
  const rows = [...ids].filter(id => id in site.cells).map(id => {
    const of = side => (side.cells[id] ?? [null]), verdict = judged?.cells[id];
    const values = (side, role) => Object.fromEntries(names.map((name, at) =>
      [name, verdict?.v?.[role]?.[name] ?? of(side)[at + 1] ?? null]));
    const planned = side => id in side.cells ? of(side)[0] ?? "missing" : "not planned";
    return {id, cell: site.cells[id], base: values(before, "base"), new: values(after, "new"),
      statuses: [planned(before), planned(after)], verdict};
  });
  return {pair, judged, rows};
}

function outcomeOf(row) {
  if (row.verdict) return row.verdict.o;
  const [base, new_] = row.statuses;
  return base === "pass" && new_ === "pass" ? "" : base === new_ ? base : `${base} \u2192 ${new_}`;
}

function outcomeCell(row, site) {
  if (!row.verdict) return make("td", {}, outcomeOf(row) || make("span", {class: "soft"}, "not judged"));
  const words = row.verdict.s ?? [[row.verdict.o, ""]];
  return make("td", {"data-value": String(Object.keys(site.outcomes).indexOf(row.verdict.o)).padStart(3, "0")},
    ...words.flatMap(([outcome, detail], at) => {
      const [word, glyph, look] = site.outcomes[outcome] ?? [outcome, "", "calm"];
      return [at ? make("br") : "", make("span", {class: look}, `${glyph} ${word}`.trim()), detail ? make("br") : "",
        detail ? make("span", {class: "soft"}, detail) : ""];
    }));
}

function metricCell(row, metric, site) {
  const base = row.base[metric], new_ = row.new[metric], judged = row.verdict?.m?.[site.columns.indexOf(metric)];
  if (base == null && new_ == null) return make("td", {class: "n"}, ABSENT);
  const both = base != null && new_ != null && row.statuses.every(status => status === "pass");
  const change = judged ? judged[0] : both && base > 0 ? new_ / base - 1 : null;
  const look = judged?.[3] ?? "";
  const within = judged && judged[1] != null && judged[2] != null
    ? ` [${percent(judged[1]).replace("\u202f%", "")}, ${percent(judged[2]).replace("\u202f%", "")}]` : "";
  return make("td", {class: `n ${look}`.trim(), "data-value": change == null ? "" : String(change)},
    `${value(metric, base, site)} \u2192 ${value(metric, new_, site)}`, change == null ? "" : make("br"),
    change == null ? "" : percent(change), within ? make("span", {class: "soft"}, within) : "");
}

function cellHead(row, site, several, sides) {
  const [suite, model, phase, dtype, device, batch, config] = row.cell;
  const where = {suite, phase, dtype, device, batch};
  const words = Object.keys(where).filter(key => several.has(key)).map(key => where[key]).join(", ");
  const page = site.models[`${suite}/${model}`];
  const to = row.verdict?.p ? `change/${sides.pair}/${row.id}.html`
    : `${page}?${new URLSearchParams({base: sides.base.night, new: sides.new.night})}#c-${row.id}`;
  return make("th", {scope: "row"}, make("a", {href: ROOT + to}, model), " ", make("span", {class: "soft"}, config),
    words ? make("br") : "", words ? make("span", {class: "soft"}, words) : "");
}

function tableOf(rows, site, sides, caption) {
  const columns = site.columns.filter(name => rows.some(row => row.base[name] != null || row.new[name] != null));
  const several = new Set(["suite", "", "phase", "dtype", "device", "batch"].filter((key, at) =>
    key && new Set(rows.map(row => row.cell[at])).size > 1));
  const heads = [["cell", ""], ["outcome", ""], ...columns.map(name => [site.metrics[name][0], "n"])];
  const table = make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map(([name, look]) => make("th", {scope: "col", class: look}, name)))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, cellHead(row, site, several, sides), outcomeCell(row, site),
      ...columns.map(name => metricCell(row, name, site))))));
  sortable(table);
  return make("div", {class: "iw-scroll", tabindex: "0", role: "region", "aria-label": caption}, table);
}

const KEYS = ["q", "outcome", "dimension", "suite", "phase", "dtype", "device", "config"];
const PLACE = {suite: 0, phase: 2, dtype: 3, device: 4, config: 6};
const FIRST_ROWS = 300;

function kept(rows, site) {
  const words = (asked.get("q") ?? "").toLowerCase().split(/\s+/), outcomes = asked.getAll("outcome").filter(Boolean);
  return rows.filter(row => {
    const text = row.cell.join(" ").toLowerCase();
    if (!words.every(word => text.includes(word))) return false;
    for (const [key, at] of Object.entries(PLACE)) if (asked.get(key) && row.cell[at] !== asked.get(key)) return false;
    const dimension = asked.get("dimension");
    if (dimension && row.verdict) {
      const found = site.verdicts[row.verdict.f?.[site.dimensions[dimension]]];
      return found !== undefined && (!outcomes.length || outcomes.includes(found));
    }
    return !outcomes.length || outcomes.includes(outcomeOf(row));
  });
}

function select(key, title, options, chosen, change) {
  const box = make("select", {}, ...options.map(([text, name]) => make("option", {value: text, selected: text === chosen}, name)));
  if (options.every(([text]) => text)) { /* one is always chosen */ } else if (!options.some(([text]) => text === chosen)) box.value = "";
  box.addEventListener("change", () => change(key, box.value));
  return make("label", {class: key === "base" || key === "new" ? "wide" : ""}, title, box);
}

async function comparePage(place) {
  const site = await json("data/site.json");
  if (!site.nights.length) { place.replaceChildren(make("p", {}, "There is no night yet.")); return; }
  const problems = [];
  let new_ = nightOf(site, asked.get("new"));
  if (!new_) { if (asked.get("new")) problems.push(`The address has new ${asked.get("new")}, which is not published. The newest night is shown.`); new_ = site.nights[0]; }
  let base = nightOf(site, asked.get("base"));
  if (!base) {
    if (asked.get("base") && asked.get("base") !== "previous") problems.push(`The address has base ${asked.get("base")}, which is not published.`);
    base = nightOf(site, new_.base) ?? site.nights[site.nights.indexOf(new_) + 1] ?? new_;
  }
  const change = (key, text) => {
    asked.set("base", base.night); asked.set("new", new_.night);
    if (text) asked.set(key, text); else asked.delete(key);
    history.pushState(null, "", `?${asked}`);
    comparePage(place);
  };
  const found = await joinNights(site, base, new_), sides = {base, new: new_, pair: found.pair};
  const order = Object.keys(site.outcomes), rank = row => row.verdict ? order.indexOf(row.verdict.o) : outcomeOf(row) ? -1 : 99;
  const size = row => row.verdict ? row.verdict.r ?? 0 : Math.max(0, ...site.columns.map(name => Math.abs(row.base[name] > 0 && row.new[name] != null ? row.new[name] / row.base[name] - 1 : 0)));
  const rows = kept(found.rows, site).sort((a, b) => rank(a) - rank(b) || size(b) - size(a) || a.cell.join().localeCompare(b.cell.join()));
  const distinct = at => [...new Set(found.rows.map(row => row.cell[at]))].sort();
  const nights = site.nights.map(night => [night.night, labelOf(night)]);
  const outcomes = [...new Set(found.rows.flatMap(row => [outcomeOf(row), ...[...(row.verdict?.f ?? "")].map(letter => site.verdicts[letter])]))].filter(Boolean);
  const search = make("input", {type: "search", value: asked.get("q") ?? ""});
  search.addEventListener("change", () => change("q", search.value));
  const pickers = make("div", {class: "pick"}, select("base", "Base", nights, base.night, change), select("new", "New", nights, new_.night, change),
    make("label", {}, "Filter by text", search),
    select("dimension", "Dimension", [["", "all"], ...Object.keys(site.dimensions).map(name => [name, name])], asked.get("dimension") ?? "", change),
    select("outcome", "Outcome", [["", "all"], ...outcomes.map(name => [name, site.outcomes[name]?.[0] ?? name])], asked.get("outcome") ?? "", change),
    ...Object.entries(PLACE).filter(([key, at]) => distinct(at).length > 1 || asked.get(key)).map(([key, at]) =>
      select(key, key[0].toUpperCase() + key.slice(1), [["", "all"], ...distinct(at).map(name => [name, name])], asked.get(key) ?? "", change)));
  const head = found.judged
    ? [make("p", {class: "iw-verdict"}, found.judged.sentence),
      make("ul", {class: "iw-sides soft"}, ...found.judged.sides.map((text, at) => make("li", {}, `${["base", "new"][at]} ${text}`))),
      make("ul", {class: "iw-dimensions"}, ...found.judged.lines.map(text => make("li", {}, text))),
      make("ul", {class: "soft iw-notes"}, ...found.judged.notes.map(text => make("li", {}, text)))]
    : [make("p", {class: "iw-verdict"}, base === new_ ? "Base and new are one night." : "These two nights were not judged together: values and changes without a verdict.")];
  const caption = `${rows.length} cells` + (rows.length < found.rows.length ? `, of ${found.rows.length}` : "");
  const shown = make("div", {}, tableOf(rows.slice(0, FIRST_ROWS), site, sides, caption));
  if (rows.length > FIRST_ROWS) {
    const more = make("button", {type: "button", class: "more"}, `Show all ${rows.length} rows`);
    more.addEventListener("click", () => shown.replaceChildren(tableOf(rows, site, sides, caption)));
    shown.append(more);
  }
  place.replaceChildren(...problems.map(text => make("p", {role: "alert"}, text)), pickers, ...head, shown);
  place.dataset.ready = found.judged ? "judged" : "joined";
}

// ---- the page of a model with two nights in its address

async function modelPage(place) {
  const ids = JSON.parse(place.dataset.ids);
  openCell();
  addEventListener("hashchange", openCell);
  const site = await json("data/site.json"), base = nightOf(site, asked.get("base")), new_ = nightOf(site, asked.get("new"));
  if (!base || !new_ || `${base.file}..${new_.file}` === place.dataset.pair) return;
  const found = await joinNights(site, base, new_);
  const rows = found.rows.filter(row => ids.includes(row.id));
  const words = `${labelOf(base)} against ${labelOf(new_)}`;
  place.replaceChildren(make("h2", {}, "The two nights of the address"), make("p", {class: "soft"}, words),
    rows.length ? tableOf(rows, site, {base, new: new_, pair: found.pair}, found.judged ? "Judged" : "Values without a verdict")
      : make("p", {}, "Neither night has this model."),
    make("p", {class: "soft"}, "Below: the newest pair of the site that has this model."));
  place.hidden = false;
}

function openCell() {
  const cell = location.hash.startsWith("#c-") ? document.getElementById(location.hash.slice(1)) : null;
  if (cell instanceof HTMLDetailsElement) { cell.open = true; cell.scrollIntoView(); }
}

// ---- addresses of the dashboard: a list that is asked for one of its things leads to it

function lost(words) {
  const place = document.getElementById("lost");
  place.textContent = words;
  place.hidden = false;
}

async function router(kind) {
  const addresses = () => JSON.parse(document.getElementById("addresses").textContent);
  if (kind === "commit" && asked.get("new")) {
    const sha = asked.get("new").split("@").pop();
    const found = Object.entries(addresses()).find(([commit]) => sha.length >= 6 && commit.startsWith(sha));
    if (found) location.replace(ROOT + found[1]); else lost(`${asked.get("new")} is not among the published commits.`);
  }
  if (kind === "record" && asked.get("record")) {
    const found = addresses()[asked.get("record")];
    if (found) location.replace(ROOT + found); else lost(`There is no record ${asked.get("record")}.`);
  }
  if (kind === "model" && asked.get("model")) {
    const site = await json("data/site.json"), page = site.models[asked.get("model")];
    if (!page) { lost(`${asked.get("model")} is not among the published models.`); return; }
    const setting = (asked.get("setting") ?? "").split(",");
    const cell = Object.entries(site.cells).find(([, of]) => `${of[0]}/${of[1]}` === asked.get("model")
      && (setting.length < 4 || [of[2], of[3], of[4], String(of[7])].join() === setting.join()) && (!asked.get("config") || of[6] === asked.get("config")));
    const sides = new URLSearchParams(["base", "new"].filter(key => asked.get(key)).map(key => [key, asked.get(key)]));
    location.replace(`${ROOT}${page}${sides.size ? `?${sides}` : ""}${cell && asked.get("config") ? `#c-${cell[0]}` : ""}`);
  }
}

document.querySelectorAll("table.sortable, main .iw-list table").forEach(sortable);
document.querySelectorAll("table.filtered").forEach(filtered);
document.querySelectorAll("[data-router]").forEach(table => router(table.dataset.router));
document.querySelectorAll("[data-compare]").forEach(place => {
  comparePage(place);
  addEventListener("popstate", () => location.reload());
});
document.querySelectorAll("[data-model]").forEach(modelPage);
charts();
