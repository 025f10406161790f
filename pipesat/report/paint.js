/*
 * Painting onto canvases. Ops are painted as one line of pixels per lane, in which every pixel has
 * the exact mixture of the colours that its time is made of; so 100,000 ops cost no more than the
 * pixels they are seen on, and ops narrower than a pixel blend instead of hiding each other.
 */

const OUTLINED = 4; // pixels from which an op's ends are marked
const EDGE = 0.35; // brightness of these marks, as in the pictures

function rgbOf(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

/** An image with one line of pixels per rank, or two where ops overlap. */
class LaneImage {
  constructor() {
    this.canvas = document.createElement("canvas");
  }

  /**
   * Paint ranks `first` to `last` over `view` onto `width` pixels.
   * look: {fills (rgb per shade and kind), background (rgb), dim (fade what is not critical)}
   */
  paint(schedule, first, last, view, width, look) {
    this.lines = schedule.hasPairs ? 2 : 1;
    this.first = first;
    const height = Math.max(1, (last - first) * this.lines);
    this.canvas.width = Math.max(1, width);
    this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(this.canvas.width, height);
    const colours = this.colours(look);
    for (let device = first; device < last; device++) {
      const line = (device - first) * this.lines;
      const lane = schedule.lanes[device];
      for (let body = 0; body < this.lines; body++) {
        const hidden = this.lines === 1 ? -1 : body === 0 ? LOWER : UPPER;
        this.smear(image, line + body, lane, view, width, hidden,
          (i) => colours[look.dim && !lane.critical[i] ? 1 : 0][KINDS.length * lane.shade[i] + lane.kind[i]]);
      }
    }
    context.putImageData(image, 0, 0);
  }

  /** Colours of the kinds as they are, and faded. */
  colours(look) {
    const faded = look.fills.map((fill) =>
      fill.map((c, channel) => 0.28 * c + 0.72 * look.background[channel]));
    return [look.fills, faded];
  }

  /** Average the colours of a lane's ops over each column of one line of the image. */
  smear(image, line, lane, view, width, hidden, colourOf) {
    const sums = new Float32Array(4 * width); // red, green, blue, share that is covered
    const edges = new Uint8Array(width + 1);
    const scale = width / (view.to - view.from);
    for (let i = lane.firstAfter(view.from); i < lane.count && lane.start[i] < view.to; i++) {
      if (lane.part[i] === hidden && hidden >= 0) continue;
      const x0 = (lane.start[i] - view.from) * scale, x1 = (lane.end[i] - view.from) * scale;
      const from = Math.max(0, x0), to = Math.min(width, x1);
      const [red, green, blue] = colourOf(i);
      for (let column = Math.floor(from); column < to; column++) {
        const part = Math.min(to, column + 1) - Math.max(from, column);
        sums[4 * column] += part * red;
        sums[4 * column + 1] += part * green;
        sums[4 * column + 2] += part * blue;
        sums[4 * column + 3] += part;
      }
      if (x1 - x0 >= OUTLINED || x1 === x0) {
        const start = Math.round(x0), end = Math.round(x1);
        if (start >= 0 && start < width) edges[start] = 1;
        // what follows at once marks this end with its own start
        const follows = i + 1 < lane.count && (lane.start[i + 1] - lane.end[i]) * scale < 1;
        if (!follows && end > start && end <= width) edges[end - 1] = 1;
      }
    }
    const pixels = image.data;
    let at = 4 * line * image.width;
    for (let column = 0; column < width; column++, at += 4) {
      const cover = sums[4 * column + 3];
      const bright = edges[column] ? EDGE : 1;
      for (let channel = 0; cover && channel < 3; channel++) {
        pixels[at + channel] = bright * sums[4 * column + channel] / cover;
      }
      pixels[at + 3] = edges[column] ? 255 : 255 * Math.min(1, cover);
    }
  }

  /** Copy a rank's lane into a box. */
  draw(context, device, box) {
    const line = (device - this.first) * this.lines;
    const width = this.canvas.width;
    const body = box.height / this.lines;
    context.imageSmoothingEnabled = false;
    for (let i = 0; i < this.lines; i++) {
      context.drawImage(this.canvas, 0, line + i, width, 1, box.x, box.y + i * body, box.width, body);
    }
  }
}

/** Steps of a memory profile as [x, level], one column of pixels keeping its largest level. */
function stepsOf(profile, view, width) {
  const { times, held } = profile;
  const scale = width / (view.to - view.from);
  const points = [];
  let level = 0;
  for (let i = Math.max(0, lastAtMost(times, view.from)); i < times.length && times[i] < view.to; i++) {
    const x = Math.max(0, Math.floor((times[i] - view.from) * scale));
    const last = points[points.length - 1];
    if (last && last[0] === x) {
      last[1] = Math.max(last[1], held[i]);
    } else {
      if (last && last[1] !== level && last[0] + 1 < x) points.push([last[0] + 1, level]);
      points.push([x, held[i]]);
    }
    level = held[i];
  }
  return points;
}

/** Paint a rank's memory into a box: static part, what is held, and what exceeds the cap. */
function drawMemory(context, profile, device, view, box, top, look) {
  const level = (value) => box.y + box.height * (1 - value / top);
  const bottom = box.y + box.height;
  const end = box.x + box.width;
  const shape = new Path2D(), line = new Path2D();
  shape.moveTo(box.x, bottom);
  let y = bottom;
  for (const [x, value] of stepsOf(profile, view, box.width)) {
    shape.lineTo(box.x + x, y);
    if (y === bottom && x === 0) line.moveTo(box.x, level(value)); else line.lineTo(box.x + x, y);
    y = level(value);
    shape.lineTo(box.x + x, y);
    line.lineTo(box.x + x, y);
  }
  shape.lineTo(end, y);
  shape.lineTo(end, bottom);
  line.lineTo(end, y);
  const cap = device.memory === null ? Infinity : device.memory;
  const limits = [0, Math.min(device.static, cap), Math.min(cap, top), top];
  [look.static, look.held, look.excess].forEach((colour, i) => {
    if (limits[i + 1] <= limits[i]) return;
    context.save();
    context.beginPath();
    context.rect(box.x, level(limits[i + 1]), box.width, level(limits[i]) - level(limits[i + 1]));
    context.clip();
    context.fillStyle = colour;
    context.fill(shape);
    context.restore();
  });
  context.strokeStyle = look.outline;
  context.lineWidth = 1;
  context.stroke(line);
  if (cap <= top) {
    context.strokeStyle = look.capacity;
    context.setLineDash([5, 3]);
    context.beginPath();
    const at = Math.round(level(cap)) + 0.5;
    context.moveTo(box.x, at);
    context.lineTo(end, at);
    context.stroke();
    context.setLineDash([]);
  }
}

/** Smallest of 1, 2, 5, 10, ... with at most `most` steps in a length. */
function roundStep(length, most) {
  let step = 1;
  while (length > most * step) {
    const leading = Number(String(step)[0]);
    step = leading === 2 ? step * 5 / 2 : step * 2;
  }
  return step;
}
