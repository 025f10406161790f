/* The report: each case with its timeline, and the buttons of its table. */

function startCase(root) {
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  if (!data.schedules.length) return;
  const timeline = startTimeline(root);
  const { part } = timeline;
  for (const button of root.querySelectorAll("button[data-show], button[data-beside]")) {
    button.addEventListener("click", () => {
      if ("show" in button.dataset) part("schedule").value = button.dataset.show;
      else part("beside").value = button.dataset.beside;
      timeline.show(part("schedule").value, part("beside").value);
      part("panels").scrollIntoView({ block: "nearest" });
    });
  }
  load(timeline, data);
}

startPage();
for (const root of document.querySelectorAll(".case")) startCase(root);
