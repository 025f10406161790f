/* What is around a timeline: the theme, the choice of schedules, zoom, and the tables below. */

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.querySelector("[data-role=theme]");
  button.textContent = theme === "dark" ? "Light colours" : "Dark colours";
  for (const root of document.querySelectorAll(".case")) {
    if (root.timeline) root.timeline.draw();
  }
}

function startPage() {
  document.body.append(tooltip);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => setTheme(dark.matches ? "dark" : "light");
  follow();
  dark.addEventListener("change", follow);
  document.querySelector("[data-role=theme]").addEventListener("click", () => {
    dark.removeEventListener("change", follow);
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
}

function fillSelect(select, names, empty) {
  const before = select.value;
  select.replaceChildren();
  if (empty) select.append(new Option(empty, ""));
  for (const [name, label] of names) select.append(new Option(label, name));
  if (names.some(([name]) => String(name) === before)) select.value = before;
}

/** A timeline with its controls; `load` gives it schedules, and others later. */
function startTimeline(root) {
  const timeline = root.timeline = new Timeline(root);
  const part = timeline.part;
  const update = () => timeline.show(part("schedule").value, part("beside").value);
  part("schedule").addEventListener("change", update);
  part("beside").addEventListener("change", update);
  const click = (role, action) => part(role).addEventListener("click", action);
  click("in", () => timeline.zoom(1 / 1.5));
  click("out", () => timeline.zoom(1.5));
  click("fit", () => timeline.fit());
  click("taller", () => timeline.setRow(timeline.row * 1.3));
  click("shorter", () => timeline.setRow(timeline.row / 1.3));
  for (const role of ["critical", "memory"]) {
    part(role).addEventListener("change", (event) => {
      timeline[role] = event.target.checked;
      timeline.draw();
    });
  }
  const lists = () => fillLists(timeline);
  timeline.listeners.push(lists);
  for (const role of ["path", "ops"]) part(role).addEventListener("toggle", lists);
  part("rank").addEventListener("change", lists);
  return timeline;
}

/** Let a timeline show a problem's schedules; those that were chosen stay if they are there. */
function load(timeline, data) {
  const problem = withUnits(data);
  const { part } = timeline;
  timeline.load(problem);
  const labels = problem.schedules.map((s) => {
    const value = problem.time(problem.objective === "makespan" ? s.makespan : s.span);
    return [s.name, `${s.name}: ${value}${s.valid ? "" : s.over.length ? ", over the cap" : ", not valid"}`];
  });
  fillSelect(part("schedule"), labels);
  fillSelect(part("beside"), labels, "nothing");
  fillSelect(part("rank"), problem.devices.map((device, i) => [i, device.name]));
  timeline.show(part("schedule").value, part("beside").value);
}

/** Fill the tables of the schedules in sight; long ones only when they are open. */
function fillLists(timeline) {
  const { part, schedules } = timeline;
  part("idle").replaceChildren(...schedules.map(idleTable));
  part("path-content").replaceChildren(...(part("path").open ? schedules.map(pathTable) : []));
  const rank = Number(part("rank").value);
  part("ops-content").replaceChildren(
    ...(part("ops").open ? schedules.map((s) => opsTable(s, rank)) : []));
}
