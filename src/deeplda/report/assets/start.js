// Set up the plots on the page and keep them up to date.

const view = { x: 0, y: 1, mistakes: false };
const allSamples = data.samples.map(unpackSamples);
const plots = Array.from(document.querySelectorAll(".scatter"), (figure) => {
  const run = unpackRun(data.runs[figure.dataset.run]);
  return new Scatter(figure, run, allSamples[run.samples], view);
});
const redraw = () => plots.forEach((plot) => plot.draw());
classes.listeners.push(redraw);

// Mark the sample chosen in one plot in all other plots of the same samples.
for (const plot of plots) {
  plot.chosenHere = (i) => {
    for (const other of plots) if (other !== plot && other.run.samples === plot.run.samples) other.follow(i);
  };
  new ResizeObserver(() => plot.draw()).observe(plot.stage);
}

for (const axis of ["x", "y"]) {
  document.getElementById("axis-" + axis)?.addEventListener("change", (event) => {
    view[axis] = Number(event.target.value);
    redraw();
  });
}
document.getElementById("mistakes")?.addEventListener("change", (event) => {
  view.mistakes = event.target.checked;
  redraw();
});

const curves = document.querySelector("svg.densities");
if (curves) {
  const densities = new Densities(curves, data.densities);
  classes.listeners.push(() => densities.draw());
  new ResizeObserver(() => densities.draw()).observe(curves);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => classes.tell());
