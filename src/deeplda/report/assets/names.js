// The names of the classes in a plot, placed so that they cover neither samples nor each other. The same samples always
// give the same places. A class whose name finds no free place near its samples is named only in the legend.

const CELL = 4;
const FARTHEST = 160;
const LONGEST_LEADER = 110;
const SHORTEST_LEADER = 10;
const TURNS = 32;

class Names {
  constructor(layer) {
    this.layer = layer;
  }

  clear() {
    this.layer.replaceChildren();
  }

  // Place one name per group of samples {c, xs, ys} within the area {left, top, right, bottom}, clear of all samples by
  // `radius`. Return the leaders from names to samples of their class: {c, from, to}.
  place(groups, radius, area) {
    const labels = groups.map((group) => this.label(group));
    this.layer.replaceChildren(...labels.map((label) => label.element));
    const taken = new Taken(area, groups, radius);
    const placed = [];
    for (const label of labels) {
      label.width = label.element.offsetWidth;
      label.height = label.element.offsetHeight;
    }
    for (const label of outermostFirst(labels)) {
      const place = freePlace(label, taken, placed, area);
      if (!place) {
        label.element.remove();
        continue;
      }
      placed.push(place);
      label.element.style.left = place.box.left + "px";
      label.element.style.top = place.box.top + "px";
    }
    return placed.filter((place) => distance(place.from, place.to) > SHORTEST_LEADER);
  }

  label(group) {
    // A bar in the colour of the class, not its marker, which would look like another sample.
    const element = document.createElement("span");
    element.className = classes.style(group.c).colour;
    element.append(Object.assign(document.createElement("b"), { textContent: clipped(classes.names[group.c], 20) }));
    return { c: group.c, element, ...core(group) };
  }
}

// The half of a class's samples that is closest to its centre, the closest one first. A name points at one of these
// and never at an outlier.
function core({ xs, ys }) {
  const [x, y] = [median(xs), median(ys)];
  const order = xs.map((_, i) => i).sort((a, b) => square(xs[a] - x, ys[a] - y) - square(xs[b] - x, ys[b] - y) || a - b);
  const samples = order.slice(0, Math.ceil(order.length / 2)).map((i) => [xs[i], ys[i]]);
  return { samples, anchor: samples[0] };
}

// Names at the edge are placed first, because those in the middle are longer on the way to a free place.
function outermostFirst(labels) {
  const [x, y] = [0, 1].map((k) => labels.reduce((sum, label) => sum + label.anchor[k], 0) / labels.length);
  const out = ({ anchor }) => square(anchor[0] - x, anchor[1] - y);
  return labels.slice().sort((a, b) => out(b) - out(a) || a.c - b.c);
}

// Look for a free place on ever larger rings around the centre of the class.
function freePlace({ c, width, height, anchor, samples }, taken, placed, area) {
  for (let away = 0; away <= FARTHEST; away += CELL) {
    for (let turn = 0; turn < TURNS; turn++) {
      const angle = (2 * Math.PI * turn) / TURNS;
      const left = anchor[0] + Math.cos(angle) * (away + width / 2) - width / 2;
      const top = anchor[1] + Math.sin(angle) * (away + height / 2) - height / 2;
      const box = { left, top, right: left + width, bottom: top + height };
      if (left < area.left || top < area.top || box.right > area.right || box.bottom > area.bottom) continue;
      if (!taken.free(box) || placed.some((other) => overlap(box, other.box))) continue;
      const place = { c, box, ...leader(box, samples) };
      if (distance(place.from, place.to) > LONGEST_LEADER) continue;
      if (!placed.some((other) => inTheWay(place, other))) return place;
    }
  }
  return null;
}

// The shortest line from a box to one of the samples.
function leader(box, samples) {
  let best = null;
  for (const to of samples) {
    const from = [clamp(to[0], box.left, box.right), clamp(to[1], box.top, box.bottom)];
    if (!best || distance(from, to) < distance(best.from, best.to)) best = { from, to };
  }
  return best;
}

function inTheWay(place, other) {
  return (
    cross(place.from, place.to, other.from, other.to) ||
    through(place.from, place.to, other.box) ||
    through(other.from, other.to, place.box)
  );
}

// Whether two segments cross.
function cross(a, b, c, d) {
  const side = (p, q, r) => (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]);
  return side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;
}

// Whether a segment passes through a box. Its ends lie outside.
function through(a, b, { left, top, right, bottom }) {
  return cross(a, b, [left, top], [right, bottom]) || cross(a, b, [left, bottom], [right, top]);
}

// Whether two boxes overlap or nearly touch.
function overlap(a, b) {
  return a.left < b.right + CELL && b.left < a.right + CELL && a.top < b.bottom + 1 && b.top < a.bottom + 1;
}

// The cells of the plot that are taken by samples, counted so that a box is checked at once.
class Taken {
  constructor(area, groups, radius) {
    this.columns = Math.ceil(area.right / CELL) + 2;
    this.rows = Math.ceil(area.bottom / CELL) + 2;
    this.counts = new Uint32Array(this.columns * this.rows);
    for (const { xs, ys } of groups) xs.forEach((x, i) => this.take(x, ys[i], radius));
    for (let row = 1; row < this.rows; row++) {
      for (let column = 1, sum = 0; column < this.columns; column++) {
        sum += this.counts[row * this.columns + column];
        this.counts[row * this.columns + column] = sum + this.counts[(row - 1) * this.columns + column];
      }
    }
  }

  // Cell 0 of each row and column stays empty, so that sums can start there.
  take(x, y, radius) {
    const [first, last] = [x - radius, x + radius].map((edge) => clamp(Math.floor(edge / CELL) + 1, 1, this.columns - 1));
    const [top, bottom] = [y - radius, y + radius].map((edge) => clamp(Math.floor(edge / CELL) + 1, 1, this.rows - 1));
    for (let row = top; row <= bottom; row++) {
      for (let column = first; column <= last; column++) this.counts[row * this.columns + column] = 1;
    }
  }

  free({ left, top, right, bottom }) {
    const [first, last] = [left, right].map((edge) => clamp(Math.floor(edge / CELL) + 1, 1, this.columns - 1));
    const [above, below] = [top, bottom].map((edge) => clamp(Math.floor(edge / CELL) + 1, 1, this.rows - 1));
    const sum = (row, column) => this.counts[row * this.columns + column];
    return sum(below, last) - sum(above - 1, last) - sum(below, first - 1) + sum(above - 1, first - 1) === 0;
  }
}

function median(values) {
  return values.slice().sort((a, b) => a - b)[values.length >> 1];
}

function square(x, y) {
  return x * x + y * y;
}

function distance(a, b) {
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

function clipped(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "\u2026" : text;
}
