/* What stands in a panel: ops, copies, critical path, cursor, axis, names. */

const OUTLINED = 4; // pixels from which an op's start is marked
const FADED = 0.28; // of what is not on the critical path

/** Paint the ops in sight: their colour, start, hatching, and a text where it has room. */
function drawOps(panel, context, parts, look) {
  const { schedule, timeline } = panel;
  const { view, problem } = timeline;
  const { left, plot } = panel.size;
  const textOf = labelling(panel, context, plot / (view.to - view.from));
  for (let device = panel.first; device < panel.last; device++) {
    const lane = schedule.lanes[device];
    for (let i = lane.firstAfter(view.from); i < lane.count && lane.start[i] < view.to; i++) {
      const x = Math.max(left, panel.x(lane.start[i]));
      const width = Math.max(lane.start[i] === lane.end[i] ? 1 : 0,
        Math.min(left + plot, panel.x(lane.end[i])) - x);
      const height = parts.lane / (lane.part[i] === WHOLE ? 1 : 2);
      const y = panel.rowTop(device) + (lane.part[i] === LOWER ? height : 0);
      const [fill, ink] = problem.shades[lane.shade[i]][lane.kind[i]];
      const faded = timeline.critical && !lane.critical[i];
      context.globalAlpha = faded ? FADED : 1;
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
      if (lane.mode[i] && width >= 3) {
        context.fillStyle = hatching(context, Math.min(3, lane.mode[i]), ink);
        context.fillRect(x, y, width, height);
      }
      if (width >= OUTLINED || lane.start[i] === lane.end[i]) {
        context.fillStyle = "#000000a6";
        context.fillRect(Math.round(x), y, 1, height);
      }
      const text = height < 10 ? "" : textOf(lane, i, width);
      if (text) {
        context.globalAlpha = 1;
        context.fillStyle = faded ? look.faint : ink;
        context.fillText(text, x + width / 2, y + height / 2 + 0.5);
      }
    }
  }
  context.globalAlpha = 1;
}

/** What may be written into ops: 3F12, F12 or 12, the longest that nearly all have room for. */
function labelling(panel, context, scale) {
  const { schedule, timeline } = panel;
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const digit = context.measureText("0").width;
  const forms = [
    (lane, i) => lane.text(i),
    (lane, i) => KINDS[lane.kind[i]] + lane.microbatch[i],
    (lane, i) => String(lane.microbatch[i]),
  ];
  const stages = String(timeline.problem.stages.length - 1).length;
  const needed = (digits) => (digits + 1.5) * digit + 6;
  const typical = panel.labelLength * scale;
  const shown = forms.slice(typical >= needed(stages + schedule.digits) ? 0
    : typical >= needed(schedule.digits) ? 1 : 2);
  return (lane, i, width) => {
    if (width < digit + 4) return "";
    // equal ops are treated alike, whether their microbatch has one digit or three
    const spare = schedule.digits - String(lane.microbatch[i]).length;
    return shown.map((form) => form(lane, i))
      .find((form) => (form.length + spare) * digit + 3 <= width);
  };
}

const hatchings = new Map();

/** Pattern of a mode's lines in the colour of what is written on the op. */
function hatching(context, mode, colour) {
  const key = mode + colour;
  if (!hatchings.has(key)) {
    const size = 8;
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.45;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      if (mode !== 2) { pen.moveTo(shift, size); pen.lineTo(shift + size, 0); }
      if (mode >= 2) { pen.moveTo(shift, 0); pen.lineTo(shift + size, size); }
    }
    pen.stroke();
    hatchings.set(key, context.createPattern(tile, "repeat"));
  }
  return hatchings.get(key);
}

/** Thin bars of a rank's copies: those out above those back. */
function drawCopies(panel, context, parts) {
  const { schedule, timeline } = panel;
  const { left, plot } = panel.size;
  for (let device = panel.first; device < panel.last; device++) {
    const top = panel.rowTop(device) + parts.copiesAt;
    for (const copy of schedule.lanes[device].copies) {
      const x0 = Math.max(left, panel.x(copy.start)), x1 = Math.min(left + plot, panel.x(copy.end));
      if (x1 <= x0 && copy.start !== copy.end || x0 > left + plot || x1 < left) continue;
      context.fillStyle = timeline.problem.copyColours[copy.out];
      const gap = x1 - x0 > 4 ? 1 : 0; // copies in a row stay apart
      context.fillRect(x0, top + (copy.out ? 0 : parts.copy), Math.max(1, x1 - x0 - gap), parts.copy - 1);
    }
  }
}

/** Outline the ops of the critical path, and draw how it goes from rank to rank. */
function drawCritical(panel, context, parts, look) {
  const { schedule } = panel;
  const { left, plot, height } = panel.size;
  context.save();
  context.beginPath();
  context.rect(left, AXIS - 3, plot, height);
  context.clip();
  context.strokeStyle = context.fillStyle = look.critical;
  context.lineWidth = 2;
  let last = null;
  const { from, to } = panel.timeline.view;
  for (const { device, index } of schedule.path) {
    const lane = schedule.lanes[device];
    const y = panel.rowTop(device);
    const seen = lane.end[index] >= from && (last ? last.time : 0) <= to;
    const x0 = panel.x(lane.start[index]), x1 = panel.x(lane.end[index]);
    if (seen) {
      if (x1 - x0 >= 4) context.strokeRect(x0 + 1, y + 1, x1 - x0 - 2, parts.lane - 2);
      else context.fillRect(x0, y, Math.max(1, x1 - x0), parts.lane);
      if (last && last.device !== device) {
        context.beginPath();
        context.moveTo(last.x, last.y);
        context.lineTo(x0, y + parts.lane / 2);
        context.stroke();
      }
    }
    last = { x: x1, y: y + parts.lane / 2, device, time: lane.end[index] };
  }
  context.restore();
}

/** Mark the op that is pointed at, and the op that its input came from. */
function drawCursor(panel) {
  const { ratio, width, height, left, plot } = panel.size;
  const context = panel.overlay.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  if (!panel.cursor) return;
  const look = lookOf(panel.timeline);
  const box = panel.boxOf(panel.cursor);
  context.save();
  context.beginPath();
  context.rect(left, AXIS - 3, plot, height);
  context.clip();
  context.strokeStyle = look.ink;
  const input = panel.schedule.input(panel.cursor.device, panel.cursor.index);
  if (input) {
    const from = panel.boxOf(input);
    context.lineWidth = 1.5;
    context.setLineDash([3, 2]);
    context.strokeRect(from.x, from.y, from.width, from.height);
    context.beginPath();
    context.moveTo(from.x + from.width, from.y + from.height / 2);
    context.lineTo(box.x, box.y + box.height / 2);
    context.stroke();
    context.setLineDash([]);
  }
  context.lineWidth = 2.5;
  context.strokeRect(box.x, box.y, box.width, box.height);
  context.restore();
}

function drawAxis(panel, context, ticks, look) {
  const { width, left, plot } = panel.size;
  const { timeline } = panel;
  context.fillStyle = look.paper;
  context.fillRect(0, 0, width, AXIS - 6);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = look.faint;
  context.textAlign = "left";
  const { problem } = timeline;
  context.fillText(shortened(context, problem.timeScale.unit || "time", left - 40), 8, 13);
  context.textAlign = "center";
  for (const time of ticks) {
    const x = panel.x(time);
    const half = context.measureText(problem.tick(time)).width / 2;
    context.fillText(problem.tick(time), Math.min(x, width - half - 2), 13);
    context.fillRect(Math.round(x), AXIS - 12, 1, 6);
  }
  // the bar below the numbers: which part of the whole is shown
  context.fillStyle = look.grid;
  context.fillRect(left, AXIS - 6, plot, 3);
  const { from, to } = timeline.view;
  context.fillStyle = look.accent;
  const start = left + plot * from / timeline.total;
  context.fillRect(start, AXIS - 6, Math.max(3, plot * (to - from) / timeline.total), 3);
}

function drawNames(panel, context, parts, look) {
  const { left, plot, width, height } = panel.size;
  const { devices } = panel.timeline.problem;
  context.fillStyle = look.paper;
  context.fillRect(0, AXIS - 3, left - 1, height);
  context.fillRect(left + plot, AXIS - 3, width, height);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.ceil(13 / panel.timeline.row);
  for (let device = panel.first; device < panel.last; device++) {
    if (device % every) continue;
    const y = panel.rowTop(device);
    const over = panel.schedule.over.includes(device);
    const nameAt = y + (panel.figures || !parts.track ? parts.lane : panel.timeline.row - 3) / 2;
    context.font = BOLD;
    context.fillStyle = over ? look.bad : look.ink;
    context.fillText(shortened(context, devices[device].name, left - 16), left - 8, nameAt);
    if (panel.figures) {
      context.font = FONT;
      context.fillStyle = over ? look.bad : look.faint;
      const text = shortened(context, panel.peakText(device), left - 16);
      context.fillText(text, left - 8, y + parts.trackAt + parts.track / 2);
    }
  }
}

/** A text cut so that it is no wider than `room` pixels. */
function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}
