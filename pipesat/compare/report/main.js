/* Putting a page together: the theme, and each case with its controls. */

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.querySelector("[data-role=theme]");
  button.textContent = theme === "dark" ? "Light colours" : "Dark colours";
  for (const root of document.querySelectorAll(".case")) {
    if (root.timeline) root.timeline.draw();
  }
}

function fillSelect(select, names, empty) {
  select.replaceChildren();
  if (empty) select.append(new Option(empty, ""));
  for (const [name, label] of names) select.append(new Option(label, name));
}

function startCase(root) {
  const problem = withUnits(
    JSON.parse(root.querySelector("script[type='application/json']").textContent));
  if (!problem.schedules.length) return;
  const timeline = root.timeline = new Timeline(root, problem);
  const part = timeline.part;
  const labels = problem.schedules.map((s) => {
    const value = problem.time(problem.objective === "makespan" ? s.makespan : s.span);
    return [s.name, `${s.name}: ${value}${s.valid ? "" : s.over.length ? ", over the cap" : ", not valid"}`];
  });
  fillSelect(part("schedule"), labels);
  fillSelect(part("beside"), labels, "nothing");
  fillSelect(part("rank"), problem.devices.map((device, i) => [i, device.name]));
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
  for (const button of root.querySelectorAll("button[data-show], button[data-beside]")) {
    button.addEventListener("click", () => {
      if ("show" in button.dataset) part("schedule").value = button.dataset.show;
      else part("beside").value = button.dataset.beside;
      update();
      part("panels").scrollIntoView({ block: "nearest" });
    });
  }
  const lists = () => fillLists(timeline);
  timeline.listeners.push(lists);
  for (const role of ["path", "ops"]) part(role).addEventListener("toggle", lists);
  part("rank").addEventListener("change", lists);
  update();
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

document.body.append(tooltip);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches ? "dark" : "light");
let chosen = false;
dark.addEventListener("change", () => { if (!chosen) setTheme(dark.matches ? "dark" : "light"); });
document.querySelector("[data-role=theme]").addEventListener("click", () => {
  chosen = true;
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});
for (const root of document.querySelectorAll(".case")) startCase(root);
