/* A schedule as typed arrays, decoded from the page's data, and what can be looked up in it. */

const KINDS = ["F", "B", "W", "BW"];
const PHASES = ["F", "B", "W"];
const LETTERS = { F: 0, B: 1, W: 2, X: 3, f: 0, b: 1, w: 2, x: 3 };
const TINTS = 8; // shades of the classes of microbatches
const WHOLE = 0, UPPER = 1, LOWER = 2; // the part of its lane that an op takes

/** What a problem says of one microbatch of a stage: {length, memory, delay, copied}. */
function amountsOf(problem, stage, microbatch, mode) {
  const { amounts, route } = problem.stages[stage];
  const list = problem.routes[route];
  return problem.amounts[amounts[mode][list ? list.classes[microbatch] : 0]];
}

/** Name of a microbatch's class; "" where microbatches do not differ. */
function classOf(problem, stage, microbatch) {
  const list = problem.routes[problem.stages[stage].route];
  return list ? list.names[list.classes[microbatch]] : "";
}

/** The ops of one rank, parallel arrays in execution order; `part` tells the halves of a pair. */
class Lane {
  constructor(row, problem) {
    const count = row.kinds.length;
    this.count = count;
    this.kind = new Uint8Array(count);
    this.part = new Uint8Array(count);
    this.stage = new Int32Array(count);
    this.microbatch = Int32Array.from(row.microbatches);
    this.mode = Uint8Array.from(row.modes || new Array(count).fill(0));
    this.shade = new Uint16Array(count); // of its chunk and class
    this.copies = (row.copies || []).map(([out, stage, microbatch, start, end]) =>
      ({ out, stage, microbatch, start, end, text: stage + "LO"[out] + microbatch }));
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.critical = new Uint8Array(count);
    let freeAt = 0, pairs = 0;
    for (let i = 0; i < count; i++) {
      const letter = row.kinds[i];
      const kind = this.kind[i] = LETTERS[letter];
      const stage = this.stage[i] = row.stages ? row.stages[i] : row.stage;
      const list = problem.routes[problem.stages[stage].route];
      this.shade[i] = TINTS * problem.stages[stage].place +
        (list ? list.tints[list.classes[this.microbatch[i]]] : 0);
      let { [KINDS[kind]]: length } = amountsOf(problem, stage, this.microbatch[i], this.mode[i]).length;
      if (letter !== letter.toUpperCase()) { // of a pair, and its members stand side by side
        const second = i > 0 && this.part[i - 1] === UPPER;
        this.part[i] = second ? LOWER : UPPER;
        length = row.pairs[second ? pairs++ : pairs];
      }
      this.start[i] = freeAt + row.gaps[i];
      freeAt = this.end[i] = this.start[i] + length;
    }
  }

  /** Number of the first op that ends after a time; `count` if there is none. */
  firstAfter(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  /** Number of the op that runs at a time, or -1. */
  at(time) {
    const i = this.firstAfter(time);
    return i < this.count && this.start[i] <= time ? i : -1;
  }

  /** What the problem says of an op's microbatch in its mode. */
  amounts(problem, i) {
    return amountsOf(problem, this.stage[i], this.microbatch[i], this.mode[i]);
  }

  /** The copy back that a backward waits for, or null. */
  copyBack(i) {
    if (!this.mode[i] || (KINDS[this.kind[i]] !== "B" && KINDS[this.kind[i]] !== "BW")) return null;
    return this.copies.find((copy) => !copy.out && copy.stage === this.stage[i] &&
      copy.microbatch === this.microbatch[i]) || null;
  }

  text(i) {
    return this.stage[i] + KINDS[this.kind[i]] + this.microbatch[i];
  }
}

class Schedule {
  constructor(data, source, problem) {
    this.name = data.name;
    this.source = data.source;
    this.valid = data.valid;
    this.whyNot = data.whyNot;
    this.over = data.over;
    this.problem = problem;
    this.lanes = source.devices.map((row) => new Lane(row, problem));
    this.idle = source.idle;
    this.peaks = source.peaks;
    this.path = source.path.map(([device, index, through]) => ({ device, index, through }));
    for (const { device, index } of this.path) this.lanes[device].critical[index] = 1;
    this.hasPairs = this.lanes.some((lane) => lane.part.includes(UPPER));
    this.hasCopies = this.lanes.some((lane) => lane.copies.length);
    this.makespan = 0;
    this.digits = 1; // of the largest microbatch
    for (const lane of this.lanes) {
      if (!lane.count) continue;
      this.makespan = Math.max(this.makespan, lane.end[lane.count - 1]);
      const largest = lane.microbatch.reduce((a, b) => Math.max(a, b));
      this.digits = Math.max(this.digits, String(largest).length);
    }
    this.profiles = new Array(this.lanes.length);
    this.places = null;
  }

  /** Value for the problem's objective. */
  get value() {
    if (this.problem.objective === "makespan") return this.makespan;
    const spans = this.lanes.map((l) => (l.count ? l.end[l.count - 1] - l.start[0] : 0));
    return Math.max(0, ...spans);
  }

  /** Where a stage's phase (F, B or W; BW completes B) of a microbatch runs: {device, index}. */
  find(stage, phase, microbatch) {
    if (!this.places) this.places = this.allPlaces();
    const index = this.places.get(this.key(stage, PHASES.indexOf(phase), microbatch));
    return index === undefined ? null : { device: this.problem.stages[stage].device, index };
  }

  key(stage, phase, microbatch) {
    return (microbatch * this.problem.stages.length + stage) * 3 + phase;
  }

  allPlaces() {
    const places = new Map();
    for (const lane of this.lanes) {
      for (let i = 0; i < lane.count; i++) {
        const phase = lane.kind[i] === 3 ? 1 : lane.kind[i];
        places.set(this.key(lane.stage[i], phase, lane.microbatch[i]), i);
      }
    }
    return places;
  }

  /** The one op that an op's input comes from: {device, index, delay, arrival}, or null. */
  input(device, index) {
    const lane = this.lanes[device];
    const kind = KINDS[lane.kind[index]];
    const need = this.problem.stages[lane.stage[index]].waits[kind];
    if (!need) return null;
    const [stage, phase] = need;
    const delay = lane.amounts(this.problem, index).delay[kind];
    const place = this.find(stage, phase, lane.microbatch[index]);
    return place && { ...place, delay, arrival: this.lanes[place.device].end[place.index] + delay };
  }

  /** The last op that ended on the rank before an op starts (not its pair's other half), or -1. */
  before(device, index) {
    const lane = this.lanes[device];
    let i = index - 1;
    if (lane.part[index] === LOWER) i--;
    return i;
  }

  /**
   * Memory in use on a rank: {times, held}, a step function whose changes at one instant count
   * together (what ends is free for what starts).
   */
  memory(device) {
    return this.profiles[device] ??= this.profileOf(device);
  }

  profileOf(device) {
    const lane = this.lanes[device];
    const changes = [[0, this.problem.devices[device].static]];
    for (let i = 0; i < lane.count; i++) {
      const [atStart, atEnd] = lane.amounts(this.problem, i).memory[KINDS[lane.kind[i]]];
      if (atStart) changes.push([lane.start[i], atStart]);
      if (atEnd) changes.push([lane.end[i], atEnd]);
    }
    for (const copy of lane.copies) {
      const forward = this.find(copy.stage, "F", copy.microbatch);
      const { copied } = lane.amounts(this.problem, forward.index);
      changes.push(copy.out ? [copy.end, -copied] : [copy.start, copied]);
    }
    changes.sort((a, b) => a[0] - b[0]);
    const times = [], held = [];
    let sum = 0;
    for (const [time, change] of changes) {
      sum += change;
      if (times.length && times[times.length - 1] === time) {
        held[held.length - 1] = sum;
      } else {
        times.push(time);
        held.push(sum);
      }
    }
    return { times: Float64Array.from(times), held: Float64Array.from(held) };
  }

  /** Memory in use on a rank at a time. */
  heldAt(device, time) {
    const { times, held } = this.memory(device);
    return held[Math.max(0, lastAtMost(times, time))];
  }
}

/** Index of the last of some ascending numbers that is at most `limit`; -1 if none is. */
function lastAtMost(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** The schedules of a case by name; each is decoded when it is first asked for. */
class Library {
  constructor(problem) {
    this.problem = problem;
    this.data = new Map(problem.schedules.map((data) => [data.name, data]));
    this.decoded = new Map();
  }

  get names() {
    return [...this.data.keys()];
  }

  get(name) {
    if (!this.decoded.has(name)) {
      const data = this.data.get(name);
      const source = data.sameAs ? this.data.get(data.sameAs) : data;
      this.decoded.set(name, new Schedule(data, source, this.problem));
    }
    return this.decoded.get(name);
  }
}
