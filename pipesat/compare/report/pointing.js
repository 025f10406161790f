/* Mouse, touch and keyboard on a panel, and the tooltip. */

const tooltip = make("div", "tooltip");
tooltip.setAttribute("role", "tooltip");
tooltip.hidden = true;

function showTooltip({ title, lines }, x, y) {
  tooltip.replaceChildren(make("strong", "", title), ...lines.map((line) => make("div", "", line)));
  tooltip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tooltip;
  const left = x + 16 + width > window.innerWidth - 8 ? x - width - 12 : x + 16;
  const top = y + 18 + height > window.innerHeight - 8 ? y - height - 12 : y + 18;
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

class Pointing {
  constructor(panel) {
    this.panel = panel;
    this.timeline = panel.timeline;
    this.drag = null;
    const { viewport } = panel;
    const on = (name, action, options) => viewport.addEventListener(name, action, options);
    on("wheel", (event) => this.wheel(event), { passive: false });
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", () => { this.drag = null; viewport.classList.remove("dragging"); });
    on("pointercancel", () => { this.drag = null; viewport.classList.remove("dragging"); });
    on("pointerleave", () => this.clear());
    on("dblclick", (event) => this.timeline.zoom(0.4, panel.time(this.local(event)[0])));
    on("scroll", () => { hideTooltip(); this.timeline.draw(); });
    on("keydown", (event) => this.key(event));
    on("blur", () => this.clear());
  }

  local(event) {
    const box = this.panel.base.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  clear() {
    this.panel.cursor = null;
    hideTooltip();
    if (this.panel.schedule && this.panel.size) this.panel.drawCursor();
  }

  /** The wheel zooms once the timeline has the focus, or with Ctrl; else it scrolls the page. */
  wheel(event) {
    const { timeline } = this;
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.pan(sideways * unit / this.panel.size.plot);
      return;
    }
    const focused = document.activeElement === this.panel.viewport;
    if (!(event.ctrlKey || event.metaKey || focused)) return;
    const { from, to } = timeline.view;
    if (!event.ctrlKey && event.deltaY > 0 && to - from >= timeline.total) return;
    event.preventDefault();
    timeline.zoom(Math.exp(event.deltaY * unit * 0.002), this.panel.time(this.local(event)[0]));
  }

  press(event) {
    if (event.button !== 0) return;
    const { viewport } = this.panel;
    if (event.offsetX >= viewport.clientWidth) return; // on the scroll bar
    const { from, to } = this.timeline.view;
    this.drag = { x: event.clientX, y: event.clientY, from, to, scroll: viewport.scrollTop };
    if (event.pointerType === "mouse") viewport.setPointerCapture(event.pointerId);
    viewport.classList.add("dragging");
  }

  move(event) {
    const { panel, timeline, drag } = this;
    if (drag) {
      const by = (event.clientX - drag.x) * (drag.to - drag.from) / panel.size.plot;
      if (Math.abs(event.clientX - drag.x) > 2) timeline.setView(drag.from - by, drag.to - by);
      if (event.pointerType === "mouse") {
        panel.viewport.scrollTop = drag.scroll - (event.clientY - drag.y);
      }
      hideTooltip();
      return;
    }
    const found = panel.at(...this.local(event));
    panel.cursor = found && found.what === "op" ? found : null;
    panel.drawCursor();
    if (found) showTooltip(this.describe(found), event.clientX, event.clientY);
    else hideTooltip();
  }

  describe({ what, device, index, time, copy }) {
    const { schedule } = this.panel;
    if (what === "op") return describeOp(schedule, device, index);
    if (what === "copy") return describeCopy(schedule, device, copy);
    return what === "idle" ? describeIdle(schedule, device, time) : describeMemory(schedule, device, time);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { timeline } = this;
    const keys = event.shiftKey && event.key.startsWith("Arrow") ? {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.change(-1),
      ArrowDown: () => this.change(1),
    } : {
      ArrowLeft: () => timeline.pan(-0.15),
      ArrowRight: () => timeline.pan(0.15),
      ArrowUp: () => { this.panel.viewport.scrollTop -= timeline.row; },
      ArrowDown: () => { this.panel.viewport.scrollTop += timeline.row; },
      "+": () => timeline.zoom(1 / 1.5),
      "=": () => timeline.zoom(1 / 1.5),
      "-": () => timeline.zoom(1.5),
      "_": () => timeline.zoom(1.5),
      "0": () => timeline.fit(),
      Home: () => timeline.fit(),
      Escape: () => this.clear(),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    hideTooltip();
    keys[event.key]();
  }

  /** Point at the next or previous op of the rank. */
  step(by) {
    const { cursor, schedule } = this.panel;
    if (!cursor) return this.start();
    const { count } = schedule.lanes[cursor.device];
    const index = cursor.index + by;
    if (index >= 0 && index < count) this.point({ device: cursor.device, index });
  }

  /** Point at another rank's op at about the same time. */
  change(by) {
    const { cursor, schedule } = this.panel;
    if (!cursor) return this.start();
    const time = schedule.lanes[cursor.device].start[cursor.index];
    for (let d = cursor.device + by; d >= 0 && d < schedule.lanes.length; d += by) {
      const lane = schedule.lanes[d];
      if (lane.count) {
        const index = Math.min(lane.firstAfter(time), lane.count - 1);
        return this.point({ device: d, index });
      }
    }
  }

  /** Point at the first op in sight. */
  start() {
    const { schedule } = this.panel;
    for (let device = this.panel.first; device < schedule.lanes.length; device++) {
      const lane = schedule.lanes[device];
      const index = lane.firstAfter(this.timeline.view.from);
      if (index < lane.count) return this.point({ device, index });
    }
  }

  point(cursor) {
    const { panel } = this;
    panel.reveal(cursor);
    panel.cursor = cursor;
    panel.drawCursor();
    const text = describeOp(panel.schedule, cursor.device, cursor.index);
    const box = panel.boxOf(cursor), at = panel.base.getBoundingClientRect();
    showTooltip(text, at.left + box.x + Math.min(box.width, 40), at.top + box.y + box.height);
    this.timeline.part("said").textContent = [text.title, ...text.lines].join("; ");
  }
}
