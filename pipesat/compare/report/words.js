/* Numbers and sentences. Everything is put into the page as text, never as HTML. */

const plainNumber = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function amount(value) {
  return plainNumber.format(value);
}

/** Bytes with three digits, rounded up: what is needed. */
function readable(bytes) {
  let unit = 0;
  for (; bytes >= 1000 && unit < 4; unit++) bytes /= 1024;
  const places = Math.max(0, 2 - Math.floor(Math.log10(bytes || 1)));
  const up = Math.ceil((bytes * 10 ** places).toFixed(6)) / 10 ** places;
  return `${up} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** Let a problem say times (`time`, `tick` without the unit) and memory (`held`) as people do. */
function withUnits(problem) {
  const scaled = ({ each, digits }) => {
    const format = new Intl.NumberFormat("en-US", { maximumFractionDigits: digits });
    return (value) => format.format(value * each);
  };
  const { timeScale, memoryScale } = problem;
  const number = scaled(memoryScale);
  const named = (text, { unit }) => text + (unit ? " " + unit : "");
  problem.tick = scaled(timeScale);
  problem.time = (value) => named(problem.tick(value), timeScale);
  problem.held = (value) => memoryScale.unit === "B" ? readable(value * memoryScale.each)
    : named(number(value), memoryScale);
  return problem;
}

function share(part, whole) {
  if (!whole) return "–";
  return part === 0 ? "0 %" : (100 * part / whole).toFixed(1) + " %";
}

/** Make an element with classes, text and children; `children` may be texts. */
function make(tag, classes, ...children) {
  const node = document.createElement(tag);
  if (classes) node.className = classes;
  node.append(...children);
  return node;
}

/** What an op waited for: lines of text, the decisive one first. */
function waitingOf(schedule, device, index) {
  const { problem } = schedule;
  const lane = schedule.lanes[device];
  const start = lane.start[index];
  const before = schedule.before(device, index);
  const freeAt = before < 0 ? 0 : lane.end[before];
  const inputs = [schedule.input(device, index)];
  if (lane.part[index] !== WHOLE) {
    inputs.push(schedule.input(device, lane.part[index] === UPPER ? index + 1 : index - 1));
  }
  const arrivals = inputs.filter(Boolean);
  const input = arrivals.sort((a, b) => b.arrival - a.arrival)[0];
  const lines = [];
  if (input) {
    const origin = schedule.lanes[input.device];
    const delay = input.delay ? ` + ${problem.time(input.delay)} link` : "";
    const from = input.device === device ? "" : ` on ${problem.devices[input.device].name}`;
    lines.push({
      time: input.arrival,
      text: `input ${origin.text(input.index)}${from}: ended ${problem.time(origin.end[input.index])}` +
        `${delay} = there at ${problem.time(input.arrival)}`,
    });
  }
  const back = lane.copyBack(index);
  if (back) {
    lines.push({ time: back.end, text: `its copy back ${back.text}: ended ${problem.time(back.end)}` });
  }
  if (before >= 0) {
    lines.push({ time: freeAt, text: `its rank, busy with ${lane.text(before)} until ${problem.time(freeAt)}` });
  }
  const texts = lines.sort((a, b) => b.time - a.time).map((line) =>
    (line.time === start ? "waited for " : "not for ") + line.text);
  const latest = Math.max(0, ...lines.map((line) => line.time));
  if (start > latest) texts.unshift("could have started earlier: its timing is chosen, not forced");
  else if (!lines.length) texts.push("waited for nothing: the first op of its rank");
  return texts;
}

/** Title and lines about one op. */
function describeOp(schedule, device, index) {
  const { problem } = schedule;
  const lane = schedule.lanes[device];
  const kind = KINDS[lane.kind[index]];
  const [start, end] = [lane.start[index], lane.end[index]];
  const meaning = problem.meanings[lane.kind[index]].slice(kind.length + 1);
  const its = classOf(problem, lane.stage[index], lane.microbatch[index]);
  const lines = [
    `${problem.devices[device].name}: stage ${lane.stage[index]}, ${meaning}, ` +
      `microbatch ${lane.microbatch[index]}` + (its ? `, class ${its}` : ""),
    `start ${problem.time(start)}, end ${problem.time(end)}, lasts ${problem.time(end - start)}`,
  ];
  if (lane.mode[index]) lines.push(`mode ${problem.stages[lane.stage[index]].modes[lane.mode[index]]}`);
  if (lane.part[index] !== WHOLE) {
    const other = lane.part[index] === UPPER ? index + 1 : index - 1;
    lines.push(`overlapped with ${lane.text(other)}`);
  }
  lines.push(...waitingOf(schedule, device, index));
  if (lane.critical[index]) lines.push("on the critical path");
  return { title: lane.text(index), lines };
}

/** Title and lines about a copy. */
function describeCopy(schedule, device, copy) {
  const { problem } = schedule;
  const { index } = schedule.find(copy.stage, "F", copy.microbatch);
  const { copied } = schedule.lanes[device].amounts(problem, index);
  const when = copy.out ? `free from its end on` : `taken from its start on`;
  return { title: copy.text, lines: [
    `${problem.devices[device].name}: stage ${copy.stage}, copy ${copy.out ? "out to the host" : "back"}, ` +
      `microbatch ${copy.microbatch}`,
    `start ${problem.time(copy.start)}, end ${problem.time(copy.end)}, lasts ` +
      problem.time(copy.end - copy.start),
    `${problem.held(copied)} ${when}`,
  ] };
}

/** Title and lines about idle time of a rank. */
function describeIdle(schedule, device, time) {
  const { problem } = schedule;
  const lane = schedule.lanes[device];
  const next = lane.firstAfter(time);
  const from = next > 0 ? lane.end[next - 1] : 0;
  const to = next < lane.count ? lane.start[next] : schedule.makespan;
  const when = next === 0 ? "warm-up" : next < lane.count ? "idle" : "cool-down";
  const lines = [`${problem.tick(from)} to ${problem.time(to)}: ${problem.time(to - from)}`];
  if (next < lane.count) {
    lines.push(`next: ${lane.text(next)}`, ...waitingOf(schedule, device, next));
    const wanted = memoryOfNextForward(schedule, device, next);
    const held = schedule.heldAt(device, time), cap = problem.devices[device].memory;
    if (wanted && cap !== null && held + wanted > cap) {
      lines.push(`no room for another F: ${problem.held(held)} held, ${problem.held(wanted)} wanted, ` +
        `cap ${problem.held(cap)}`);
    }
  }
  return { title: `${when} on ${problem.devices[device].name}`, lines };
}

/** What the next forward of a rank takes; 0 if there is none left. */
function memoryOfNextForward(schedule, device, from) {
  const lane = schedule.lanes[device];
  for (let i = from; i < lane.count; i++) {
    if (lane.kind[i] === 0) return lane.amounts(schedule.problem, i).memory.F[0];
  }
  return 0;
}

/** Title and lines about a rank's memory at a time. */
function describeMemory(schedule, device, time) {
  const { problem } = schedule;
  const { memory, static: fixed, name } = problem.devices[device];
  const held = schedule.heldAt(device, time);
  const cap = memory === null ? "no cap" : `cap ${problem.held(memory)}`;
  const lines = [
    `${problem.held(held)} held at ${problem.time(time)}`,
    `${cap}; static part ${problem.held(fixed)}; peak ${problem.held(schedule.peaks[device])}`,
  ];
  if (memory !== null && held > memory) lines.push(`over the cap by ${problem.held(held - memory)}`);
  return { title: `memory of ${name}`, lines };
}
