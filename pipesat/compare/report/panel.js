/* One schedule on its canvases: sizes, what is where, and the order of painting. */

/** One schedule on its canvases, inside a viewport that scrolls over the ranks. */
class Panel {
  constructor(timeline, number) {
    this.timeline = timeline;
    this.schedule = null;
    this.cursor = null; // the op that hover or keyboard point at: {device, index}
    this.caption = make("figcaption", "panel-caption");
    this.base = make("canvas");
    this.overlay = make("canvas", "overlay");
    this.sheet = make("div", "sheet", this.base, this.overlay);
    this.spacer = make("div", "spacer");
    this.viewport = make("div", "viewport", this.sheet, this.spacer);
    this.viewport.tabIndex = 0;
    this.viewport.setAttribute("role", "application");
    this.viewport.setAttribute("aria-describedby", timeline.part("keys").id);
    this.viewport.dataset.panel = number;
    this.figure = make("figure", "panel", this.caption, this.viewport);
    this.figure.hidden = true;
    timeline.part("panels").append(this.figure);
    new Pointing(this);
  }

  show(schedule) {
    this.schedule = schedule;
    this.cursor = null;
    this.figure.hidden = !schedule;
    if (!schedule) return;
    const { problem } = this.timeline;
    const value = `${problem.objective} ${problem.time(schedule.value)}`;
    const fits = schedule.valid ? make("span", "badge good", "fits")
      : make("span", "badge bad", schedule.over.length ? "over the cap" : "not valid");
    this.caption.replaceChildren(make("strong", "", schedule.name), " ", fits, ` ${value}`);
    if (schedule.source) {
      const source = (schedule.name === "solver" ? "found by " : "") + schedule.source;
      this.caption.append(make("span", "source", source));
    }
    this.viewport.setAttribute("aria-label", `timeline of ${schedule.name}, ${value}`);
    this.labelLength = typicalLength(schedule);
  }

  /** Sizes of the canvases, the plot within them, and the rows in sight. */
  measure() {
    const { timeline } = this;
    const rows = this.schedule.lanes.length * timeline.row;
    const most = Math.max(240, Math.round(0.78 * window.innerHeight));
    const height = Math.min(AXIS + rows + 4, most);
    this.viewport.style.height = `${height + 2}px`;
    const width = this.viewport.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.base, this.overlay]) {
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
    }
    this.sheet.style.height = `${height}px`;
    this.spacer.style.height = `${AXIS + rows + 4 - height}px`;
    const left = this.gutter(width);
    this.size = { width, height, ratio, left, plot: Math.max(10, width - left - RIGHT) };
    this.scroll = this.viewport.scrollTop;
    this.first = Math.max(0, Math.floor(this.scroll / timeline.row));
    this.last = Math.min(this.schedule.lanes.length,
      Math.ceil((this.scroll + height - AXIS) / timeline.row));
  }

  /** Width of the names and peaks at the left. */
  gutter(width) {
    const context = this.base.getContext("2d");
    const { devices } = this.timeline.problem;
    const step = Math.ceil(devices.length / 200);
    let widest = 30;
    for (let i = 0; i < devices.length; i += step) {
      context.font = BOLD;
      widest = Math.max(widest, context.measureText(devices[i].name).width);
      context.font = FONT;
      if (this.figures) widest = Math.max(widest, context.measureText(this.peakText(i)).width);
    }
    return Math.min(Math.ceil(widest) + 20, Math.round(0.24 * width));
  }

  /** Whether there is room for peak and cap beside the memory tracks. */
  get figures() {
    return this.timeline.rowParts.track >= 11;
  }

  peakText(device) {
    const { problem } = this.timeline;
    const { memory } = problem.devices[device];
    const peak = problem.held(this.schedule.peaks[device]);
    if (memory === null) return peak;
    const most = problem.held(memory), unit = most.slice(most.indexOf(" "));
    return `${peak.endsWith(unit) ? peak.slice(0, -unit.length) : peak} / ${most}`;
  }

  x(time) {
    const { from, to } = this.timeline.view;
    return this.size.left + this.size.plot * (time - from) / (to - from);
  }

  time(x) {
    const { from, to } = this.timeline.view;
    return from + (x - this.size.left) * (to - from) / this.size.plot;
  }

  rowTop(device) {
    return AXIS + device * this.timeline.row - this.scroll;
  }

  draw() {
    this.measure();
    const { timeline, schedule } = this;
    const { width, height, ratio, left, plot } = this.size;
    const look = lookOf(timeline);
    const context = this.base.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = look.paper;
    context.fillRect(0, 0, width, height);
    const ticks = this.ticks(context);
    context.fillStyle = look.grid;
    for (const time of ticks) context.fillRect(Math.round(this.x(time)), AXIS - 6, 1, height);
    const parts = timeline.rowParts;
    const end = this.x(schedule.makespan); // beyond it, there is no idle time
    for (let device = this.first; device < this.last; device++) {
      const y = this.rowTop(device);
      context.fillStyle = look.lane;
      context.fillRect(left, y, Math.max(0, Math.min(plot, end - left)), parts.lane);
      if (parts.track >= 4) {
        drawMemory(context, schedule.memory(device), timeline.problem.devices[device], timeline.view,
          { x: left, y: y + parts.trackAt, width: plot, height: parts.track },
          timeline.memoryTop, look);
      }
    }
    drawOps(this, context, parts, look);
    if (schedule.hasCopies) drawCopies(this, context, parts);
    if (timeline.critical) drawCritical(this, context, parts, look);
    drawNames(this, context, parts, look);
    drawAxis(this, context, ticks, look);
    this.drawCursor();
  }

  /** Times with a tick: round, and far enough apart for their numbers. */
  ticks(context) {
    const { from, to } = this.timeline.view;
    context.font = FONT;
    const room = context.measureText(this.timeline.problem.tick(to)).width + 22;
    const step = roundStep(to - from, Math.max(1, Math.floor(this.size.plot / room)));
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push(time);
    return ticks;
  }

  drawCursor() {
    drawCursor(this);
  }

  /** Where an op is drawn. */
  boxOf({ device, index }) {
    const lane = this.schedule.lanes[device];
    const { lane: height } = this.timeline.rowParts;
    const x = this.x(lane.start[index]);
    const box = { x, y: this.rowTop(device), width: this.x(lane.end[index]) - x, height };
    if (lane.part[index] !== WHOLE) {
      box.height /= 2;
      if (lane.part[index] === LOWER) box.y += box.height;
    }
    return box;
  }

  /** What lies at a point: {what: "op" | "idle" | "copy" | "memory", device, ...}, or null. */
  at(x, y) {
    const { left, plot } = this.size;
    if (x < left || x > left + plot || y < AXIS) return null;
    const inside = y - AXIS + this.scroll;
    const device = Math.floor(inside / this.timeline.row);
    const lane = this.schedule.lanes[device];
    if (!lane) return null;
    const time = this.time(x);
    const within = inside - device * this.timeline.row;
    const parts = this.timeline.rowParts;
    if (parts.copy && within >= parts.copiesAt && within < parts.copiesAt + 2 * parts.copy) {
      const out = Number(within < parts.copiesAt + parts.copy);
      const copy = lane.copies.find((c) => c.out === out && c.start <= time && time < c.end);
      return copy ? { what: "copy", device, copy } : null;
    }
    if (within >= parts.trackAt) {
      return parts.track ? { what: "memory", device, time } : null;
    }
    let index = lane.at(time);
    if (index < 0) {
      return time <= this.schedule.makespan ? { what: "idle", device, time } : null;
    }
    if (lane.part[index] === UPPER && within > parts.lane / 2) index++;
    return { what: "op", device, index, time };
  }

  /** Bring an op into sight. */
  reveal({ device, index }) {
    const { timeline } = this;
    const { row, view } = timeline;
    const top = device * row, room = this.size.height - AXIS;
    if (top < this.viewport.scrollTop) this.viewport.scrollTop = top;
    if (top + row > this.viewport.scrollTop + room) this.viewport.scrollTop = top + row - room;
    const lane = this.schedule.lanes[device];
    const middle = (lane.start[index] + lane.end[index]) / 2;
    if (middle < view.from || middle > view.to) {
      const half = (view.to - view.from) / 2;
      timeline.setView(middle - half, middle + half);
    }
    this.measure();
  }
}

/** Length that nine of ten ops of a schedule have at least. */
function typicalLength(schedule) {
  const lengths = [];
  for (const lane of schedule.lanes) {
    for (let i = 0; i < lane.count; i += 7) {
      lengths.push(lane.amounts(schedule.problem, i).length[KINDS[lane.kind[i]]]);
    }
  }
  lengths.sort((a, b) => a - b);
  return lengths.length ? lengths[Math.floor(lengths.length / 10)] : 1;
}

/** The colours in force. */
function lookOf() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    "paper", "ink", "faint", "grid", "lane", "accent", "critical", "bad",
    "static", "held", "excess", "outline", "capacity",
  ];
  return Object.fromEntries(
    names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
