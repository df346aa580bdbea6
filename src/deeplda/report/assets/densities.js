// The density of each class along one output, chosen with the slider.

class Densities {
  constructor(svg, packed) {
    this.svg = svg;
    this.packed = packed;
    this.curves = unpack(packed.curves, Uint16Array);
    this.slider = document.getElementById("dimension");
    this.output = document.querySelector("output[for=dimension]");
    this.figures = document.getElementById("dimension-figures");
    this.notes = document.getElementById("dimension-notes").children;
    this.bars = document.querySelectorAll(".bars rect");
    this.slider.addEventListener("input", () => this.draw());
    // Align the slider's thumb, 16 pixels wide, with the bar it selects.
    const share = 100 / this.bars.length;
    this.slider.style.width = "calc(" + (100 - share) + "% + 16px)";
    this.slider.style.marginLeft = "calc(" + share / 2 + "% - 8px)";
  }

  draw() {
    const place = Number(this.slider.value) - 1;
    this.output.textContent = String(place + 1);
    this.figures.textContent = this.notes[place].textContent;
    this.bars.forEach((bar, k) => bar.classList.toggle("chosen", k === place));
    const box = this.svg.getBoundingClientRect();
    const [width, height] = [box.width || 720, box.height || 300];
    const frame = { left: 8, right: width - 8, top: 22, bottom: height - 26 };
    this.svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    const [low, high] = [this.packed.low[place], this.packed.high[place]];
    const drawn = niceSteps(low, high, width / 100).flatMap((step) => {
      const x = frame.left + ((step - low) / (high - low)) * (frame.right - frame.left);
      const grid = shape("line", { class: "grid", x1: x, x2: x, y1: frame.top, y2: frame.bottom });
      return [grid, labelled("tick middle", x, height - 8, short(step))];
    });
    this.svg.replaceChildren(...drawn, ...this.curvesAt(place, frame));
    this.svg.setAttribute("aria-label", "Density of each class along output " + (place + 1));
  }

  // The curves of the visible classes, with their names at the peaks.
  curvesAt(place, frame) {
    const { bins } = this.packed;
    const count = classes.names.length;
    const shown = classes.names.map((_, c) => c).filter((c) => classes.shown[c]);
    const values = (c) => this.curves.subarray((place * count + c) * bins, (place * count + c + 1) * bins);
    const peak = Math.max(1, ...shown.map((c) => Math.max(...values(c))));
    const x = (bin) => frame.left + ((bin + 0.5) / bins) * (frame.right - frame.left);
    const y = (value) => frame.bottom - (value / peak) * (frame.bottom - frame.top);
    const paths = shown.map((c) => densityPath(c, outline(values(c), peak / 500, x, y)));
    const spots = shown.map((c) => {
      const top = values(c).indexOf(Math.max(...values(c)));
      return { name: clipped(classes.names[c], 16), x: x(top), y: y(values(c)[top]) - 5 };
    });
    const letters = spots.reduce((sum, spot) => sum + spot.name.length, 0);
    const names = 9 * letters < frame.right ? spread(spots, frame.bottom) : [];
    return [...paths, ...names.map((spot) => labelled("name middle", spot.x, spot.y, spot.name))];
  }
}

// Move overlapping names apart, downwards if there is room and upwards otherwise.
function spread(spots, bottom) {
  const placed = [];
  for (const spot of spots.sort((a, b) => a.y - b.y)) {
    const inTheWay = () =>
      placed.some((p) => Math.abs(p.y - spot.y) < 14 && Math.abs(p.x - spot.x) < 4 * (p.name.length + spot.name.length));
    const start = spot.y;
    while (inTheWay() && spot.y < bottom) spot.y += 2;
    if (spot.y >= bottom) for (spot.y = start; inTheWay() && spot.y > 14; ) spot.y -= 2;
    placed.push(spot);
  }
  return placed;
}

// A path from the baseline along the values above `least` and back to the baseline.
function outline(values, least, x, y) {
  const first = values.findIndex((value) => value > least);
  const last = values.findLastIndex((value) => value > least);
  if (first < 0) return "";
  const steps = [];
  for (let bin = first; bin <= last; bin++) steps.push("L" + x(bin).toFixed(1) + " " + y(values[bin]).toFixed(1));
  return "M" + x(first).toFixed(1) + " " + y(0) + steps.join("") + "L" + x(last).toFixed(1) + " " + y(0);
}

function densityPath(c, d) {
  const { colour, plain } = classes.style(c);
  const path = shape("path", { d, class: "density " + colour });
  if (!plain) path.classList.add("more");
  const title = shape("title", {});
  title.textContent = classes.names[c];
  path.append(title);
  return path;
}

function labelled(kind, x, y, text) {
  const made = shape("text", { class: kind, x, y });
  made.textContent = text;
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
