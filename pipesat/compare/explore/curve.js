/* Time against memory as a curve to drag along, and a search's value and bound as they come. */

const EDGE = { left: 62, right: 14, top: 12, bottom: 34 };

function penOf(canvas, box) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = box;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  return { pen, width, height };
}

/** Value of the last step at or before a place; `steps` ascend. */
function stepAt(steps, place) {
  let found = null;
  for (const step of steps) if (step[0] <= place) found = step;
  return found;
}

/** The first bound proven for at least a capacity holds there. */
function boundAt(bounds, cap) {
  return bounds.filter(([at]) => at >= cap).reduce((most, [, value]) => Math.max(most, value), 0);
}

class MemoryCurve {
  constructor(box, moved) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.moved = moved; // called with a capacity, while dragging too
    this.dragging = false;
    const at = (event) => this.capOf(event.clientX - box.getBoundingClientRect().left);
    box.addEventListener("pointerdown", (event) => {
      if (!this.data || event.button) return;
      box.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.set(at(event));
    });
    box.addEventListener("pointermove", (event) => { if (this.dragging) this.set(at(event)); });
    for (const end of ["pointerup", "pointercancel"]) {
      box.addEventListener(end, () => { this.dragging = false; });
    }
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Show a curve; the handle stays where it is dragged. */
  show(data, problem) {
    this.data = data;
    this.problem = problem;
    if (!this.dragging) this.cap = data.own;
    this.draw();
  }

  set(cap) {
    if (cap === this.cap) return;
    this.cap = cap;
    this.draw();
    this.moved(cap);
  }

  key(event) {
    if (!this.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const { least, most, steps } = this.data;
    const now = this.cap ?? most, by = Math.max(1, Math.round((most - least) / 60));
    const places = steps.map(([peak]) => peak);
    const to = {
      ArrowLeft: now - by, ArrowDown: now - by, ArrowRight: now + by, ArrowUp: now + by,
      Home: least, End: most,
      PageUp: places.find((p) => p > now) ?? most,
      PageDown: places.filter((p) => p < now).pop() ?? least,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.set(Math.max(least, Math.min(most, to)));
  }

  capOf(x) {
    const { least, most, steps } = this.data;
    const plot = this.box.clientWidth - EDGE.left - EDGE.right;
    const share = Math.max(0, Math.min(1, (x - EDGE.left) / plot));
    const cap = Math.round(least + share * (most - least));
    // near a step, the step: that much memory is what its schedule needs
    const near = steps.find(([peak]) => Math.abs(peak - cap) <= 5 * (most - least) / plot);
    return near ? near[0] : cap;
  }

  draw() {
    if (!this.data || !this.box.clientWidth) return;
    const { least, most, steps, bounds, scale } = this.data;
    const { problem } = this;
    const { pen, width, height } = penOf(this.canvas, this.box);
    const look = lookOf();
    const values = [...steps.map(([, value]) => value), ...bounds.map(([, value]) => value)];
    const fastest = Math.min(...values), slowest = Math.max(...steps.map(([, v]) => v), fastest + 1);
    // the first steps may take many times the best: they are drawn off the top
    const high = Math.min(slowest, 1.7 * fastest) + 0.02 * fastest;
    const low = Math.max(0, fastest - 0.12 * (high - fastest));
    const x = (cap) => EDGE.left + (width - EDGE.left - EDGE.right) * (cap - least) / (most - least);
    const y = (value) => EDGE.top + (height - EDGE.top - EDGE.bottom) * (high - value) / (high - low);
    const bottom = height - EDGE.bottom;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const step = roundStep(high - low, 4);
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
      pen.fillStyle = look.grid;
      pen.fillRect(EDGE.left, Math.round(y(value)), width - EDGE.left - EDGE.right, 1);
      pen.fillStyle = look.faint;
      pen.fillText(problem.tick(value), EDGE.left - 8, y(value));
    }
    pen.textAlign = "left";
    pen.fillText(problem.timeScale.unit, 4, 8);
    this.axis(pen, x, bottom, look);
    pen.save();
    pen.beginPath();
    pen.rect(EDGE.left - 1, EDGE.top - 8, width - EDGE.left - EDGE.right + 2, bottom - EDGE.top + 8);
    pen.clip();
    this.area(pen, x, y, bottom, look);
    pen.restore();
    this.handle(pen, x, y, bottom, look);
    const found = this.cap === null ? null : stepAt(steps, this.cap);
    const share = scale ? `, ${(100 * (this.cap - scale[0]) / scale[1]).toFixed(0)} % of 1F1B's` : "";
    this.text = this.cap === null ? "memory is unlimited, or differs between devices"
      : `${problem.held(this.cap)}${share}: ` + (found ? `${problem.time(found[1])}, ${found[2]}` : "nothing fits");
    this.box.setAttribute("aria-valuemin", least);
    this.box.setAttribute("aria-valuemax", most);
    this.box.setAttribute("aria-valuenow", this.cap ?? most);
    this.box.setAttribute("aria-valuetext", this.text);
    const status = document.querySelector("[data-role=at]");
    if (status.textContent !== this.text) status.textContent = this.text;
  }

  /** Numbers below: shares of 1F1B's memory where there are any, else amounts. */
  axis(pen, x, bottom, look) {
    const { least, most, scale } = this.data;
    const [from, each, named] = scale ? [scale[0], scale[1] / 100, (n) => `${n} %`]
      : [0, 1, (n) => this.problem.held(n)];
    const step = roundStep((most - least) / each, scale ? 7 : 4);
    pen.textAlign = "center";
    pen.fillStyle = look.faint;
    for (let n = Math.ceil((least - from) / each / step) * step; from + n * each <= most; n += step) {
      const at = x(from + n * each);
      pen.fillRect(Math.round(at), bottom, 1, 5);
      const half = pen.measureText(named(n)).width / 2;
      pen.fillText(named(n), Math.min(at, this.box.clientWidth - half - 1), bottom + 13);
    }
    pen.textAlign = "right";
    pen.fillText(scale ? "memory of a device, as a share of 1F1B's" : "memory of a device", x(most), bottom + 27);
  }

  area(pen, x, y, bottom, look) {
    const { most, steps, bounds } = this.data;
    const upper = [], lower = [];
    steps.forEach(([peak, value], i) => {
      upper.push([x(peak), y(value)], [x(steps[i + 1] ? steps[i + 1][0] : most), y(value)]);
    });
    const caps = [...bounds.map(([cap]) => cap)].sort((a, b) => a - b);
    caps.forEach((cap, i) => {
      const before = i ? caps[i - 1] : this.data.least;
      const value = y(boundAt(bounds, cap));
      lower.push([x(before), value], [x(cap), value]);
    });
    const trace = (points, first) => points.forEach(([a, b], i) =>
      i || !first ? pen.lineTo(a, b) : pen.moveTo(a, b));
    if (upper.length && lower.length) {
      const start = upper[0][0];
      const under = lower.filter(([a]) => a >= start);
      pen.beginPath();
      trace(upper, true);
      trace([...under].reverse(), false);
      const first = lower.filter(([a]) => a < start).pop();
      if (first) pen.lineTo(start, first[1]);
      pen.closePath();
      pen.globalAlpha = 0.14;
      pen.fillStyle = look.accent;
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    pen.strokeStyle = look.faint;
    pen.beginPath();
    trace(lower, true);
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 2.5;
    pen.strokeStyle = look.accent;
    pen.beginPath();
    trace(upper, true);
    pen.stroke();
    pen.fillStyle = look.accent;
    for (const [peak, value] of steps) {
      pen.beginPath();
      pen.arc(x(peak), y(value), 3, 0, 7);
      pen.fill();
    }
  }

  handle(pen, x, y, bottom, look) {
    if (this.cap === null) return;
    const { least, most, steps } = this.data;
    const at = x(Math.max(least, Math.min(most, this.cap)));
    pen.strokeStyle = look.capacity;
    pen.lineWidth = 2;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(at, EDGE.top - 4);
    pen.lineTo(at, bottom);
    pen.stroke();
    pen.setLineDash([]);
    const found = stepAt(steps, this.cap);
    const place = found ? Math.max(EDGE.top, y(found[1])) : bottom;
    pen.beginPath();
    pen.arc(at, place, 7, 0, 7);
    pen.fillStyle = look.paper;
    pen.fill();
    pen.stroke();
  }
}

/** Value and bound over the seconds of a search, as steps. */
function drawLive(canvas, events, seconds, problem) {
  const { pen, width, height } = penOf(canvas, canvas);
  const look = lookOf();
  const known = events.filter((e) => e.value !== null);
  if (!known.length) return;
  const bounds = events.map((e) => e.bound).filter((b) => b !== null);
  const high = Math.max(...known.map((e) => e.value));
  const low = Math.min(...known.map((e) => e.value), ...(bounds.length ? [Math.max(...bounds)] : []));
  const room = Math.max(1, high - low);
  const y = (value) => 10 + (height - 20) * Math.max(-0.1, Math.min(1.1, (high - value) / room));
  const last = Math.max(0.5, seconds), right = width - 8;
  const x = (time) => 2 + (right - 2) * time / last;
  const line = (key, colour, dash) => {
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.setLineDash(dash);
    pen.beginPath();
    let at = null;
    for (const event of [...events, { ...events[events.length - 1], seconds: last }]) {
      if (event[key] === null) continue;
      if (at === null) pen.moveTo(x(event.seconds), y(event[key]));
      else { pen.lineTo(x(event.seconds), at); pen.lineTo(x(event.seconds), y(event[key])); }
      at = y(event[key]);
    }
    pen.stroke();
  };
  line("bound", look.faint, [4, 3]);
  line("value", look.accent, []);
  const end = events[events.length - 1];
  canvas.setAttribute("aria-label", `value ${end.shown[0]}, bound ${end.shown[1]}`);
}
