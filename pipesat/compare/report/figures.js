/* Tables of the schedules in sight: where each rank's time goes, the critical path, all ops. */

const CAUSES = ["busy", "warm-up", "no input", "no memory", "unforced", "cool-down"];
const BATCH = 2000; // lines of a long table that are made at once

function tableOf(caption, head, rows, foot) {
  const line = (tag, cells) => make("tr", "", ...cells.map((cell, i) => {
    const node = make(i === 0 || tag === "th" ? "th" : "td", head[i].number ? "number" : "text", cell);
    if (node.tagName === "TH") node.scope = tag === "th" ? "col" : "row";
    return node;
  }));
  const table = make("table", "", make("caption", "", caption),
    make("thead", "", line("th", head.map((column) => column.title))),
    make("tbody", "", ...rows.map((cells) => line("td", cells))));
  if (foot) table.append(make("tfoot", "", line("td", foot)));
  const scroller = make("div", "scroller", table);
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", caption);
  return scroller;
}

const text = (title) => ({ title, number: false });
const number = (title) => ({ title, number: true });

/** A bar of the parts that a rank's time has. */
function barOf(parts, problem) {
  const whole = parts.reduce((a, b) => a + b, 0);
  const bar = make("div", "bar");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map((part, i) => `${CAUSES[i]} ${share(part, whole)}`).join(", "));
  const order = [1, 0, 2, 3, 4, 5]; // as time goes: warm-up first
  for (const i of order) {
    if (!parts[i]) continue;
    const piece = make("span", `piece cause-${i}`);
    piece.style.width = `${100 * parts[i] / whole}%`;
    piece.title = `${CAUSES[i]} ${problem.time(parts[i])} (${share(parts[i], whole)})`;
    bar.append(piece);
  }
  return bar;
}

function idleTable(schedule) {
  const { problem } = schedule;
  const causes = CAUSES.map((cause, i) => number(make("span", "cause", make("i", `cause-${i}`), cause)));
  const head = [text("rank"), text("share of the makespan"), ...causes, number("peak memory"),
    number("cap")];
  const rows = schedule.idle.map((parts, device) => {
    const { name, memory } = problem.devices[device];
    const over = memory !== null && schedule.peaks[device] > memory;
    const peak = make("span", over ? "over" : "", problem.held(schedule.peaks[device]) + (over ? " over" : ""));
    return [name, barOf(parts, problem), ...parts.map(problem.time), peak,
      memory === null ? "none" : problem.held(memory)];
  });
  const sums = CAUSES.map((_, i) => schedule.idle.reduce((sum, parts) => sum + parts[i], 0));
  const whole = sums.reduce((a, b) => a + b, 0);
  const foot = ["all ranks", barOf(sums, problem), ...sums.map((sum) => share(sum, whole)), "", ""];
  return tableOf(`${schedule.name}: each rank's time by cause`, head, rows, foot);
}

/** What the critical path is made of, and its steps. */
function pathTable(schedule) {
  const { problem } = schedule;
  const sums = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  let work = 0;
  const through = { d: "after the op before", i: "when its input arrives", s: "first" };
  const rows = schedule.path.map(({ device, index, through: how }) => {
    const lane = schedule.lanes[device];
    const length = lane.end[index] - lane.start[index];
    sums[KINDS[lane.kind[index]]] += length;
    work += length;
    return [itemText(lane, index), problem.devices[device].name, problem.time(lane.start[index]),
      problem.time(lane.end[index]), through[how]];
  });
  const parts = KINDS.filter((kind) => sums[kind]).map((kind) => `${kind} ${problem.time(sums[kind])}`);
  const last = schedule.path[schedule.path.length - 1], first = schedule.path[0];
  const length = last ? schedule.lanes[last.device].end[last.index] -
    schedule.lanes[first.device].start[first.index] : 0;
  const note = make("p", "", `${schedule.name}: ${amount(rows.length)} ops one after the other, ` +
    `${problem.time(work)} of work (${parts.join(", ")}) and ` +
    `${problem.time(length - work)} of waiting, mostly on links.`);
  const head = [text("op"), text("rank"), number("start"), number("end"), text("starts")];
  return make("div", "", note, tableOf(`${schedule.name}: critical path`, head, rows));
}

function itemText(lane, index) {
  return lane.part[index] === UPPER ? `(${lane.text(index)}+${lane.text(index + 1)})` : lane.text(index);
}

/** Every op of one rank: the timeline for those who do not see it. */
function opsTable(schedule, device) {
  const { problem } = schedule;
  const lane = schedule.lanes[device];
  const rows = [];
  for (let i = 0; i < Math.min(lane.count, BATCH); i++) {
    rows.push([lane.text(i), problem.time(lane.start[i]), problem.time(lane.end[i]),
      problem.held(schedule.heldAt(device, lane.start[i])), waitingOf(schedule, device, i)[0]]);
  }
  const name = problem.devices[device].name;
  const more = lane.count > BATCH ? `, the first ${amount(BATCH)} of ${amount(lane.count)}` : "";
  const head = [text("op"), number("start"), number("end"), number("memory held"), text("why then")];
  return tableOf(`${schedule.name}: ops of ${name}${more}`, head, rows);
}
