/* The timeline of one case: one or two panels that share what they show, and how it is moved. */

const AXIS = 34; // pixels at the top of a panel
const RIGHT = 16; // pixels free at the right of the plot
const LEAST_ROW = 18, MOST_ROW = 160;
const FONT = "11px system-ui, sans-serif";
const BOLD = "600 11px system-ui, sans-serif";
const FAR_CAP = 2; // times the largest peak: beyond it a cap is only given as a number

class Timeline {
  constructor(root) {
    this.root = root;
    this.part = (role) => root.querySelector(`[data-role="${role}"]`);
    this.critical = false;
    this.memory = this.part("memory").checked;
    this.view = { from: 0, to: 1 };
    this.panels = [new Panel(this, 0), new Panel(this, 1)];
    this.listeners = [];
    new ResizeObserver(() => this.draw()).observe(this.part("panels"));
  }

  /** Take a problem with its schedules, of which none is shown yet. */
  load(problem) {
    if (!this.problem || this.problem.devices.length !== problem.devices.length) {
      this.row = Math.min(84, Math.max(26, Math.round(720 / problem.devices.length)));
    }
    this.problem = problem;
    this.library = new Library(problem);
  }

  /** Show one schedule, or two of them (`beside` may be empty). */
  show(name, beside) {
    const shown = [name, beside || null];
    this.panels.forEach((panel, i) => panel.show(shown[i] ? this.library.get(shown[i]) : null));
    const schedules = this.schedules;
    this.total = Math.max(1, ...schedules.map((s) => s.makespan));
    this.shortest = shortestOp(this.problem);
    const peak = Math.max(1, ...schedules.flatMap((s) => s.peaks));
    const caps = this.problem.devices.map((d) => d.memory).filter((cap) => cap !== null);
    const near = caps.filter((cap) => cap <= FAR_CAP * peak);
    this.memoryTop = 1.08 * Math.max(peak, ...near);
    this.fit();
    for (const listener of this.listeners) listener(this);
  }

  get schedules() {
    return this.panels.map((panel) => panel.schedule).filter(Boolean);
  }

  fit() {
    this.setView(0, this.total);
  }

  /** Show a range of time, kept within the schedules and no shorter than half an op. */
  setView(from, to) {
    const least = Math.min(this.total, Math.max(this.shortest / 2, this.total / 1e7));
    const length = Math.min(this.total, Math.max(least, to - from));
    const middle = (from + to) / 2;
    let start = to - from === length ? from : middle - length / 2;
    start = Math.max(0, Math.min(start, this.total - length));
    this.view = { from: start, to: start + length };
    this.draw();
  }

  /** Make the shown range `factor` times as long; `at` stays where it is. */
  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    const least = Math.min(this.total, Math.max(this.shortest / 2, this.total / 1e7));
    const length = Math.min(this.total, Math.max(least, (to - from) * factor));
    const start = at - (at - from) * length / (to - from);
    this.setView(start, start + length);
  }

  /** Move by a share of what is shown. */
  pan(part) {
    const by = part * (this.view.to - this.view.from);
    this.setView(this.view.from + by, this.view.to + by);
  }

  setRow(height) {
    this.row = Math.round(Math.min(MOST_ROW, Math.max(LEAST_ROW, height)));
    this.draw();
  }

  /** Where lane, copies (two bars of height `copy`) and memory track lie within a row. */
  get rowParts() {
    const free = Math.max(3, Math.round(0.1 * this.row));
    const copies = this.schedules.some((schedule) => schedule.hasCopies);
    const copy = copies ? Math.max(3, Math.round(0.08 * this.row)) : 0;
    const gap = this.row > 40 ? 3 : 1;
    const room = this.row - free - (copies ? 2 * copy + gap : 0);
    const lane = this.memory ? Math.round(0.56 * room) : room;
    const copiesAt = lane + gap;
    if (!this.memory) return { lane, copy, copiesAt, track: 0, trackAt: this.row };
    const trackAt = copies ? copiesAt + 2 * copy + gap : copiesAt;
    return { lane, copy, copiesAt, trackAt, track: room - lane - gap };
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (!this.total) return;
      for (const panel of this.panels) if (panel.schedule) panel.draw();
      const { from, to } = this.view;
      this.part("status").textContent = to - from >= this.total
        ? `all of 0 to ${this.problem.time(this.total)}`
        : `${this.problem.tick(from)} to ${this.problem.time(to)}, ` +
          `${(this.total / (to - from)).toFixed(1)} × zoom`;
    });
  }
}

function shortestOp(problem) {
  const lengths = problem.amounts.flatMap((entry) => Object.values(entry.length));
  const positive = lengths.filter((length) => length > 0);
  return positive.length ? positive.reduce((a, b) => Math.min(a, b)) : 1;
}
