/* The page: what is stated at the left, asked for and shown at the right. */

const part = (role) => document.querySelector(`[data-role="${role}"]`);
const settingOf = (name) => document.querySelector(`[data-setting="${name}"]`);
const SETTLED = 250; // milliseconds without a change, until the curve is asked for
const LONGEST_LINK = 100_000;
const SHARE = /^1f1b(?:\*([\d.]+))?$/;
const OF_LAYERS = ["placement", "chunks", "devices", "microbatches", "memory", "comm", "backward"];

const REFUSED = {
  403: "This page belongs to another run. Open the address that pipesat explore has printed.",
  413: "This is too large for the page.",
  500: "An internal error, which the terminal shows. Please report it.",
};

const token = { name: "pipesat-token", get value() { return localStorage.getItem(this.name) || ""; } };
const answers = document.getElementById("answers");
let stated = null; // {base, settings, objective}
let fresh = null; // the settings of plain numbers
let answer = null; // what is shown
let busy = false, wanted = false, settled = 0, searching = null;

/* Questions */

async function send(question, body, signal) {
  const response = await fetch(`/ask/${question}`, {
    method: "POST", signal, body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Pipesat-Token": token.value },
  });
  if (!response.ok) throw new Error(REFUSED[response.status] || `${response.status} ${response.statusText}`);
  return response;
}

async function ask(question, body = {}) {
  try {
    return await (await send(question, body)).json();
  } catch (error) {
    const gone = error instanceof TypeError;
    return { error: gone ? "pipesat explore has ended. Start it again in its terminal." : error.message };
  }
}

function complain(text) {
  part("error").hidden = !text;
  part("error").textContent = text || "";
}

/** Ask for the schedules of what is stated: one question at a time, the last state wins. */
async function refresh() {
  wanted = true;
  halt();
  part("progress").textContent = "";
  part("live").hidden = true;
  clearTimeout(settled);
  if (busy) return;
  busy = true;
  answers.setAttribute("aria-busy", "true");
  while (wanted) {
    wanted = false;
    const found = await ask("schedules", stated);
    complain(found.error);
    if (!found.error) show(found);
  }
  busy = false;
  settled = setTimeout(settle, SETTLED);
}

async function settle() {
  history.replaceState(null, "", await link());
  const asked = JSON.stringify(stated);
  const found = await ask("curve", stated);
  if (asked !== JSON.stringify(stated)) return;
  answers.setAttribute("aria-busy", "false");
  if (found.error) return;
  showCurve(found.curve);
  if (!found.curve.complete && !busy && !searching) settled = setTimeout(settle);
}

/* The link: the state as compressed JSON behind the address */

async function through(stream, bytes) {
  const piped = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

async function link() {
  const text = new TextEncoder().encode(JSON.stringify(stated));
  const bytes = await through(new CompressionStream("deflate-raw"), text);
  const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return base64.length > LONGEST_LINK ? location.pathname
    : `#problem=${base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`;
}

/** What a link states; null if it states nothing. */
async function linked(text) {
  if (!text) return null;
  try {
    const raw = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    const bytes = Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
    const stream = new DecompressionStream("deflate-raw");
    return JSON.parse(new TextDecoder().decode(await through(stream, bytes)));
  } catch {
    return null;
  }
}

/* Settings */

const isNumbers = () => !stated.base;
const isProblem = () => !isNumbers() && "devices" in stated.base;

function used(name) {
  if (isNumbers()) return name in fresh;
  if (!isProblem()) return OF_LAYERS.includes(name);
  return name === "memory" || name === "microbatches" && typeof stated.base.microbatches === "number";
}

function change(name, value) {
  if (Number.isNaN(value)) return;
  if (value === undefined) delete stated.settings[name]; else stated.settings[name] = value;
  fillSettings();
  refresh();
}

/** The capacity as a share of 1F1B's, in percent; null where it has none. */
function percentOfMemory() {
  const { memory } = stated.settings;
  const share = typeof memory === "string" && memory.match(SHARE);
  if (share) return Math.round(100 * Number(share[1] || 1));
  const scale = answer && answer.curve && answer.curve.scale;
  const cap = typeof memory === "number" ? memory : memory === null ? null : answer && answer.curve && answer.curve.own;
  return scale && typeof cap === "number" ? Math.round(100 * (cap - scale[0]) / scale[1]) : null;
}

/** Let the inputs say what is stated; the one that is typed in stays as it is. */
function fillSettings() {
  const { settings } = stated;
  const units = isNumbers() ? { time: settings.time_unit, memory: settings.memory_unit } : {};
  for (const row of document.querySelectorAll("[data-setting]")) {
    const name = row.dataset.setting;
    row.hidden = !used(name) || name === "chunks" && settings.placement !== "loop";
    const value = name === "memory" ? percentOfMemory()
      : settings[name] ?? (name === "microbatches" ? stated.base?.microbatches : undefined);
    for (const input of row.querySelectorAll("input, select")) {
      if (input.type === "radio") {
        input.checked = input.value === value;
        input.disabled = input.value === "bidirectional" && !isNumbers();
      } else if (input !== document.activeElement || input.type === "range") {
        if (input.type === "range" && value > Number(input.max)) input.max = value;
        input.value = value ?? "";
      }
    }
    for (const unit of row.querySelectorAll("[data-unit]")) unit.textContent = units[unit.dataset.unit] || "";
  }
  part("unlimited").checked = settings.memory === null;
  document.querySelector("[data-group=costs]").hidden = isProblem();
  part("plain").hidden = isNumbers();
  part("objective").value = stated.objective || "makespan";
  part("source").textContent = isNumbers() ? "Equal layers, costs in plain numbers"
    : `${stated.base.name || "a file"}: its own costs`;
}

function startSettings() {
  for (const row of document.querySelectorAll("[data-setting]")) {
    const name = row.dataset.setting;
    for (const input of row.querySelectorAll("input, select")) {
      input.addEventListener("input", () => {
        if (input.type === "radio" || input.tagName === "SELECT") return change(name, input.value);
        if (!input.value || !input.checkValidity()) return;
        const value = Math.round(Number(input.value));
        change(name, name === "memory" ? `1f1b*${value / 100}` : value);
      });
    }
  }
  part("settings").addEventListener("submit", (event) => event.preventDefault());
  part("unlimited").addEventListener("change", (event) =>
    change("memory", event.target.checked ? null : isProblem() ? undefined : "1f1b"));
  part("objective").addEventListener("change", (event) => {
    stated.objective = event.target.value;
    refresh();
  });
  part("open").addEventListener("click", () => part("file").click());
  part("file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      const base = JSON.parse(await file.text());
      const settings = String(base.format).startsWith("pipesat.layers") ? { devices: 8, microbatches: 32 } : {};
      state({ base, settings, objective: stated.objective });
    } catch (error) {
      complain(`${file.name} is no JSON: ${error.message}`);
    }
  });
  part("plain").addEventListener("click", () => state({ base: null, settings: { ...fresh } }));
  part("link").addEventListener("click", async () => {
    const address = location.origin + "/" + await link();
    try {
      await navigator.clipboard.writeText(address);
      part("link").textContent = address.includes("#") ? "Copied" : "Too long for a link";
    } catch {
      part("link").textContent = "Copy the address above";
    }
    setTimeout(() => { part("link").textContent = "Copy link"; }, 2500);
  });
}

function state(next) {
  stated = next;
  fillSettings();
  refresh();
}

/* Answers */

/** Where the answer is a hand-written schedule, that one has its timeline: it needs no second row. */
function withoutSolver({ data, finder }) {
  const [solver] = data.schedules;
  const same = data.schedules.find((s) => s.name === finder && s.sameAs === "solver");
  if (!same) return;
  for (const one of data.schedules) if (one.sameAs === "solver") one.sameAs = finder;
  delete same.sameAs;
  for (const key of ["devices", "idle", "peaks", "path"]) same[key] = solver[key];
  data.schedules.shift();
}

function show(found) {
  const curve = found.curve || (answer && answer.curve);
  answer = { ...found, curve };
  withoutSolver(found);
  part("title").textContent = document.title = found.name || "pipesat explore";
  part("lead").textContent = found.lead;
  const chosen = timeline.part("schedule").value;
  timeline.part("memory").parentElement.hidden = !found.memory;
  timeline.memory = found.memory && timeline.part("memory").checked;
  const follow = !chosen || chosen === leader || !found.data.schedules.some((s) => s.name === chosen);
  leader = (found.data.schedules[0] || {}).name;
  if (follow) timeline.part("schedule").replaceChildren();
  timeline.root.hidden = !found.data.schedules.length;
  if (leader) load(timeline, found.data);
  ranking.show(found, timeline);
  ranking.mark(timeline.part("schedule").value);
  fillLegend(found.legend);
  if (!searching) showBest(found);
  const [, gain] = found.facts.find(([name]) => name === "Gain") || ["", ""];
  part("gain").textContent = gain && `Gain: ${gain}.`;
  nameButtons();
  fillLeftOut(found.leftOut);
  fillExports();
  const facts = found.facts.flatMap(([label, text]) => [make("dt", "", label), make("dd", "", text)]);
  part("facts").querySelector("dl").replaceChildren(...facts);
  if (found.curve) showCurve(found.curve);
}

function showCurve(data) {
  answer.curve = data;
  curve.show(data, withUnits({ ...answer.data }));
  fillSettings();
  const cap = data.own;
  part("capacity").textContent = cap === null ? "" : `${curve.problem.held(cap)} on every device`;
}

/** The best value, and what is proven of it: of an answer, or of a search under way. */
function showBest({ value, bound, shown, finder, proven, verdict }) {
  const [time, least, gap] = shown;
  part("value").replaceChildren(value === null ? "nothing fits" : time,
    ...(value === null ? [] : [" ", make("small", "", `by ${finder}`)]));
  part("verdict").textContent = verdict || `gap ${gap}`;
  part("verdict").className = proven ? "good" : "";
  const decided = value === null || bound === null ? 0 : value ? bound / value : 1;
  part("meter").querySelector("i").style.width = `${100 * decided}%`;
  part("meter").querySelector("b").style.width = `${100 * (1 - decided)}%`;
  part("meter").setAttribute("aria-label", `bound ${least}, gap ${gap}`);
  part("bound").textContent = bound === null ? "No bound is known."
    : `No schedule can beat ${least}.` + (proven ? "" : " The hatched part is not decided.");
}

function fillLegend(legend) {
  timeline.part("legend").replaceChildren(...legend.map(([sample, text, letters]) => {
    const swatch = make("span", `swatch ${sample}`, letters);
    swatch.setAttribute("aria-hidden", "true");
    return make("li", "", ...(sample ? [swatch] : []), `${letters} ${text}`);
  }));
}

function fillLeftOut(leftOut) {
  const count = leftOut.reduce((sum, [, names]) => sum + names.length, 0);
  part("left-out").hidden = !count;
  part("left-out").querySelector("summary").textContent =
    `${count} hand-written schedules do not apply here`;
  part("left-out").querySelector("ul").replaceChildren(...leftOut.map(([reason, names]) =>
    make("li", "", make("b", "", names.join(", ")), `: ${reason}`)));
}

/* Searches */

/** What the two buttons do now. */
function nameButtons() {
  const { proven, searched } = answer || {};
  const names = { solve: proven ? "Proven" : searched ? "Go on" : "Search for a better one", frontier: "Search the curve" };
  for (const [question, role] of [["solve", "search"], ["frontier", "search-curve"]]) {
    const own = searching && searching.question === question;
    part(role).textContent = own ? "Stop" : names[question];
    part(role).disabled = searching ? !own : question === "solve" && Boolean(proven);
  }
}

/** End the search under way: what it has found is lost, because something else was asked. */
function halt() {
  if (!searching) return;
  searching.abort();
  searching = null;
  nameButtons();
}

async function search(question) {
  if (searching) { // the same button says Stop: the best so far comes as the answer
    part("progress").textContent = "Stopping";
    await ask("halt");
    return;
  }
  const mine = searching = Object.assign(new AbortController(), { question });
  const events = [];
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const limit = Math.max(1, Number(part("seconds").value) || 20);
  nameButtons();
  part("live").hidden = true;
  let doing = "starting";
  const tell = (event) => {
    if (mine !== searching) return;
    if (event.shown) events.push(event);
    const last = events[events.length - 1];
    doing = event.doing || event.source || doing;
    part("progress").textContent = `${Math.round(seconds())} of ${limit} s: ${doing}`;
    if (question === "solve" && last) showEvent(events, seconds());
  };
  let done = null;
  try {
    const response = await send(question, { ...stated, seconds: limit }, mine.signal);
    for await (const event of linesOf(response)) {
      if ("done" in event) done = event.done; else if (event.error) done = event; else tell(event);
    }
  } catch (error) {
    if (!mine.signal.aborted) done = { error: error.message };
  }
  if (mine !== searching) return;
  searching = null;
  const said = `Searched ${seconds().toFixed(1)} s.`;
  complain(done && done.error);
  nameButtons();
  if (!done || done.error) return;
  show(done);
  part("progress").textContent = said;
}

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
  if (rest) yield JSON.parse(rest);
}

function showEvent(events, seconds) {
  const last = events[events.length - 1];
  const canvas = part("live");
  canvas.hidden = false;
  drawLive(canvas, events, seconds, timeline.problem);
  const found = events.find((event) => event.value === last.value); // later ones raised the bound
  showBest({ ...last, finder: found.source });
  part("gain").textContent = ""; // of what was best before
}

/* Export */

const LABELS = { solve: "all that solve writes, of the best known", frontier: "all that frontier writes" };

function fillExports() {
  const fits = answer.rows.filter((row) => row.valid && timeline.library.data.has(row.name));
  fillSelect(part("export-schedule"), fits.map((row) => [row.name, row.name]));
  part("export-of").hidden = part("export-to").value in LABELS;
}

function startExport({ exports, output }) {
  fillSelect(part("export-to"), exports.map((name) => [name, LABELS[name] || `the order for ${name}`]));
  part("export").disabled = part("export-to").disabled = !exports.length;
  part("exported").textContent = output ? `Files go to ${output}.`
    : "Start with pipesat explore -o DIR to write files into DIR.";
  part("export-to").addEventListener("change", fillExports);
  part("export").addEventListener("click", async () => {
    const body = { ...stated, to: part("export-to").value, schedule: part("export-schedule").value };
    const { error, folder, files, notes } = await ask("export", body);
    part("exported").textContent = error || [`Written. ${folder} has ${files.filter((f) => f[0] !== ".").join(", ")}.`, ...notes].join(" ");
  });
}

/* Start */

const timeline = startTimeline(document.querySelector(".case"));
let leader = ""; // the schedule that was best
const ranking = new Ranking(part("ranking"), (name) => {
  timeline.part("schedule").value = name;
  timeline.show(name, timeline.part("beside").value);
  timeline.part("panels").scrollIntoView({ block: "nearest" });
});
const curve = new MemoryCurve(part("curve"), (cap) => change("memory", cap));
timeline.listeners.push(() => ranking.mark(timeline.part("schedule").value));

async function start() {
  startPage();
  part("theme").addEventListener("click", () => { ranking.again(); curve.draw(); });
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.get("token")) localStorage.setItem(token.name, given.get("token"));
  const known = await ask("start");
  if (known.error) return complain(known.error);
  fresh = known.numbers;
  startSettings();
  startExport(known);
  part("search").addEventListener("click", () => search("solve"));
  part("search-curve").addEventListener("click", () => search("frontier"));
  state(await linked(given.get("problem")) || known.begin);
}

start();
