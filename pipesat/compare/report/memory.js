/* Memory over time, on a canvas. */

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
