/* The ranking: every schedule with its figures and a small picture, best first. */

const THUMB_ROW = 11; // pixels of a device in a small picture, its memory included
const MOST_HIGH = 190; // pixels of a small picture

function rowOf(devices) {
  return Math.max(2, Math.min(THUMB_ROW, MOST_HIGH / devices));
}

/** Draw a schedule without names and axis, all of `total` time from left to right. */
function drawSmall(canvas, schedule, problem, total, memoryTop) {
  const devices = schedule.lanes.length;
  const row = rowOf(devices);
  const width = canvas.clientWidth, height = Math.ceil(devices * row);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const view = { from: 0, to: total };
  const look = lookOf();
  const lane = memoryTop && row >= 7 ? Math.round(0.55 * row) : row - Math.min(1, row / 4);
  const small = {
    schedule, timeline: { view, problem, critical: false }, first: 0, last: devices,
    size: { left: 0, plot: width }, labelLength: 0,
    x: (time) => width * time / total, rowTop: (device) => device * row,
  };
  context.fillStyle = look.lane;
  context.fillRect(0, 0, width * schedule.makespan / total, height);
  drawOps(small, context, { lane }, look);
  if (!memoryTop || row < 7) return;
  const whole = { from: 0, to: Math.min(total, schedule.makespan) };
  const quiet = { ...look, capacity: look.outline };
  for (let device = 0; device < devices; device++) {
    const box = { x: 0, y: device * row + lane, width: width * whole.to / total, height: row - lane - 1 };
    drawMemory(context, schedule.memory(device), problem.devices[device], whole, box, memoryTop, quiet);
  }
}

/** How much longer than the best one, in words; "" where there is nothing to say. */
function overBest(value, best) {
  if (!best || value === null) return "";
  return value === best ? "best" : `+${(100 * (value / best - 1)).toFixed(1)} %`;
}

class Ranking {
  constructor(list, choose) {
    this.list = list;
    this.choose = choose;
    new ResizeObserver(() => this.again()).observe(list);
  }

  /** Show an answer's rows; the solver's own only if it has something of its own. */
  show(answer, timeline) {
    this.timeline = timeline;
    const { problem, library } = timeline;
    const found = problem.schedules.find((s) => s.name === "solver");
    const rows = answer.rows.filter((row) => row.name !== "solver" || answer.searched ||
      !problem.schedules.some((s) => s.name === answer.finder));
    const valid = rows.filter((row) => row.valid).map((row) => row.value);
    this.best = Math.min(...valid);
    const drawn = rows.filter((row) => library.data.has(row.name));
    const fitting = drawn.filter((row) => row.valid);
    const longest = (some) => Math.max(1, ...some.map((row) => library.get(row.name).makespan));
    this.total = Math.min(longest(drawn), 1.6 * longest(fitting.length ? fitting.slice(0, 3) : drawn));
    const peak = Math.max(1, ...drawn.flatMap((row) => library.get(row.name).peaks));
    const caps = problem.devices.map((d) => d.memory).filter((cap) => cap !== null);
    this.memoryTop = answer.memory ? 1.05 * Math.max(...(caps.length ? caps : [peak])) : 0;
    const focused = document.activeElement?.dataset?.name;
    this.list.replaceChildren(...rows.map((row, i) => this.item(row, i + 1, found)));
    this.again();
    if (focused) this.buttons.find((b) => b.dataset.name === focused)?.focus();
  }

  get buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  item(row, place) {
    const [makespan, , span, , peak] = row.figures;
    const time = this.timeline.problem.objective === "makespan" ? makespan : span;
    const own = row.name === "solver";
    const over = row.valid ? overBest(row.value, this.best) : row.fits;
    const button = make("button", "",
      make("span", "place", row.valid ? String(place) : "–"),
      make("span", own ? "name own" : "name", own ? "found by the solver" : row.name),
      make("span", "time", time),
      make("span", row.valid ? "over-best" : "over-best bad", over),
      make("span", row.valid ? "memory" : "memory bad", peak),
      make("canvas", ""));
    button.type = "button";
    button.dataset.name = row.name;
    button.title = row.source + (row.why_not ? `\n${row.why_not}` : "");
    button.addEventListener("click", () => this.choose(row.name));
    const canvas = button.querySelector("canvas"), devices = this.timeline.problem.devices.length;
    canvas.style.height = `${Math.ceil(devices * rowOf(devices))}px`;
    canvas.setAttribute("aria-hidden", "true");
    return make("li", row.valid ? "" : "unfit", button);
  }

  mark(name) {
    for (const button of this.buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.name === name));
    }
  }

  paint(button) {
    const { problem, library } = this.timeline;
    if (!library.data.has(button.dataset.name)) return;
    const schedule = library.get(button.dataset.name);
    drawSmall(button.querySelector("canvas"), schedule, problem, this.total, this.memoryTop);
  }

  /** Paint all, one picture between two frames: nothing waits for the last ones. */
  again() {
    cancelAnimationFrame(this.next);
    const buttons = this.buttons;
    const step = () => {
      const button = buttons.shift();
      if (!button) return;
      this.paint(button);
      this.next = requestAnimationFrame(step);
    };
    step();
  }
}
