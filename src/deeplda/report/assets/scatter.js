// The embedding as points on a canvas. A second canvas on top shows the ring around the chosen sample, so that moving
// the pointer over ten thousand points redraws only the ring.

const MARGIN = { left: 46, right: 12, top: 10, bottom: 40 };
const REACH = 14;
const MOST_NAMED = 20;

class Scatter {
  constructor(figure, run, samples, view) {
    this.run = run;
    this.samples = samples;
    this.view = view;
    this.stage = figure.querySelector(".stage");
    this.points = figure.querySelector(".points");
    this.marks = figure.querySelector(".marks");
    this.names = new Names(figure.querySelector(".names"));
    this.card = figure.querySelector(".card");
    this.status = figure.querySelector(".status");
    this.spoken = figure.querySelector(".spoken");
    this.x = new Float32Array(run.count);
    this.y = new Float32Array(run.count);
    this.visible = new Uint8Array(run.count);
    this.chosen = -1;
    this.chosenHere = () => {};
    this.marks.addEventListener("pointermove", (event) => this.point(event));
    this.marks.addEventListener("pointerdown", (event) => this.point(event));
    this.marks.addEventListener("pointerleave", (event) => {
      // Lifting a finger also triggers pointerleave, but the touched sample should stay visible.
      if (event.pointerType !== "touch") this.choose(-1);
    });
    this.marks.addEventListener("blur", () => this.choose(-1));
    this.marks.addEventListener("keydown", (event) => this.key(event));
  }

  draw() {
    const width = this.stage.clientWidth;
    const height = this.stage.clientHeight;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    for (const canvas of [this.points, this.marks]) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    this.size = { width, height, scale };
    this.place();
    const context = this.points.getContext("2d");
    context.scale(scale, scale);
    this.drawAxes(context);
    this.drawLeaders(context, this.placeNames());
    this.drawPoints(context);
    if (this.chosen >= 0 && !this.visible[this.chosen]) this.choose(-1);
    else this.mark();
  }

  // Compute screen positions, and a grid of cells to find the sample under the pointer.
  place() {
    const { run, view } = this;
    const { width, height } = this.size;
    const [across, up] = [view.x, view.y].map((axis) => Math.min(axis, run.axes.length - 1));
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const pad = 8;
    this.columns = Math.ceil(width / REACH);
    this.heads = new Int32Array(this.columns * Math.ceil(height / REACH)).fill(-1);
    this.next = new Int32Array(run.count);
    this.drawn = 0;
    for (let i = 0; i < run.count; i++) {
      this.x[i] = MARGIN.left + pad + (run.coordinates[across * run.count + i] / 65535) * (inner.width - 2 * pad);
      this.y[i] = MARGIN.top + pad + (1 - run.coordinates[up * run.count + i] / 65535) * (inner.height - 2 * pad);
      this.visible[i] = classes.shown[run.labels[i]] && !(view.mistakes && run.labels[i] === run.decided[i]);
      if (!this.visible[i]) continue;
      this.drawn++;
      const cell = Math.floor(this.y[i] / REACH) * this.columns + Math.floor(this.x[i] / REACH);
      this.next[i] = this.heads[cell];
      this.heads[cell] = i;
    }
    this.inner = { ...inner, pad, across, up };
    this.status.textContent =
      this.drawn.toLocaleString("en") + " of " + run.count.toLocaleString("en") + " samples shown";
  }

  drawAxes(context) {
    const { width, height } = this.size;
    const { inner, run } = this;
    const bottom = height - MARGIN.bottom;
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    const text = pageColour("--quiet");
    const line = pageColour("--rule");
    const x = this.scaleOf(inner.across, MARGIN.left + inner.pad, inner.width - 2 * inner.pad);
    const y = this.scaleOf(inner.up, bottom - inner.pad, 2 * inner.pad - inner.height);
    context.strokeStyle = line;
    context.fillStyle = text;
    context.textAlign = "center";
    for (const step of niceSteps(run.low[inner.across], run.high[inner.across], width / 110)) {
      rule(context, x(step), MARGIN.top, x(step), bottom);
      context.fillText(short(step), x(step), bottom + 15);
    }
    context.textAlign = "right";
    for (const step of niceSteps(run.low[inner.up], run.high[inner.up], height / 80)) {
      rule(context, MARGIN.left, y(step), width - MARGIN.right, y(step));
      context.fillText(short(step), MARGIN.left - 6, y(step) + 4);
    }
    context.textAlign = "center";
    context.fillText(run.axes[inner.across], MARGIN.left + inner.width / 2, height - 6);
    context.save();
    context.translate(11, MARGIN.top + inner.height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(run.axes[inner.up], 0, 0);
    context.restore();
  }

  scaleOf(axis, start, length) {
    const low = this.run.low[axis];
    const span = this.run.high[axis] - low || 1;
    return (value) => Math.round(start + ((value - low) / span) * length) + 0.5;
  }

  radius() {
    const { count } = this.run;
    return count > 3000 ? 2.6 : count > 600 ? 3.4 : 4.4;
  }

  // Draw one small image per class and copy it to each sample, which is much faster than drawing ten thousand paths.
  drawPoints(context) {
    const { run } = this;
    const radius = this.radius();
    const side = 2 * Math.ceil(radius + 2);
    const edge = pageColour("--page");
    const stamps = classes.names.map((_, c) => stamp(classes.marker(c), radius, side, this.size.scale, edge));
    const { scale } = this.size;
    context.save();
    // Align to device pixels, so that nothing is smoothed.
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (let i = 0; i < run.count; i++) {
      if (!this.visible[i]) continue;
      const mark = stamps[run.labels[i]];
      const half = mark.width / 2;
      context.drawImage(mark, Math.round(this.x[i] * scale - half), Math.round(this.y[i] * scale - half));
    }
    context.restore();
  }

  // Write the name of each class beside its samples. Return the lines that lead from names to samples.
  placeNames() {
    const { run, inner } = this;
    if (classes.names.length > MOST_NAMED || this.view.mistakes) {
      this.names.clear();
      return [];
    }
    const groups = classes.names.map((_, c) => ({ c, xs: [], ys: [] }));
    for (let i = 0; i < run.count; i++) {
      if (!this.visible[i]) continue;
      groups[run.labels[i]].xs.push(this.x[i]);
      groups[run.labels[i]].ys.push(this.y[i]);
    }
    const [right, bottom] = [MARGIN.left + inner.width, MARGIN.top + inner.height];
    const area = { left: MARGIN.left, top: MARGIN.top, right, bottom };
    const present = groups.filter((group) => group.xs.length);
    return this.names.place(present, this.radius() + 2, area);
  }

  // Draw the leaders below the samples, so that they cover none.
  drawLeaders(context, leaders) {
    context.lineWidth = 1.25;
    for (const { c, from, to } of leaders) {
      context.strokeStyle = classes.marker(c).colour;
      rule(context, ...from, ...to);
    }
  }

  point(event) {
    const box = this.marks.getBoundingClientRect();
    this.choose(this.nearest(event.clientX - box.left, event.clientY - box.top));
  }

  nearest(x, y) {
    const rows = this.heads.length / this.columns;
    const [column, row] = [Math.floor(x / REACH), Math.floor(y / REACH)];
    let best = -1;
    let least = REACH * REACH;
    for (let r = Math.max(0, row - 1); r <= Math.min(rows - 1, row + 1); r++) {
      for (let c = Math.max(0, column - 1); c <= Math.min(this.columns - 1, column + 1); c++) {
        for (let i = this.heads[r * this.columns + c]; i >= 0; i = this.next[i]) {
          const away = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
          if (away < least) [least, best] = [away, i];
        }
      }
    }
    return best;
  }

  key(event) {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (step) {
      event.preventDefault();
      this.choose(this.chosen < 0 ? this.first() : this.towards(step), true);
    } else if (event.key === "Escape") {
      this.choose(-1);
    }
  }

  first() {
    return this.visible.indexOf(1);
  }

  // The nearest sample in a direction from the chosen one, or the chosen one itself if there is none.
  towards([dx, dy]) {
    let best = this.chosen;
    let least = Infinity;
    for (let i = 0; i < this.run.count; i++) {
      if (!this.visible[i]) continue;
      const along = (this.x[i] - this.x[this.chosen]) * dx + (this.y[i] - this.y[this.chosen]) * dy;
      const aside = (this.x[i] - this.x[this.chosen]) * dy + (this.y[i] - this.y[this.chosen]) * dx;
      const away = along + 2 * Math.abs(aside);
      if (along > 0.01 && Math.abs(aside) <= along * 2 && away < least) [least, best] = [away, i];
    }
    return best;
  }

  choose(i, speak = false) {
    if (i === this.chosen) return;
    this.chosen = i;
    this.mark();
    this.show(i, speak);
    this.chosenHere(i);
  }

  // Draw a ring around the sample chosen here or in another plot of the same samples.
  mark() {
    const context = this.marks.getContext("2d");
    const { width, height, scale } = this.size;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    if (this.chosen < 0 || !this.visible[this.chosen]) return;
    context.strokeStyle = pageColour("--text");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(this.x[this.chosen], this.y[this.chosen], 8, 0, 2 * Math.PI);
    context.stroke();
  }

  follow(i) {
    if (!this.size || i === this.chosen) return;
    this.chosen = i;
    this.mark();
    this.show(-1, false);
  }

  show(i, speak) {
    this.card.hidden = i < 0;
    if (i < 0) return;
    const { run } = this;
    const [label, decided] = [run.labels[i], run.decided[i]];
    const sure = ((100 * run.probabilities[i]) / 65535).toFixed(1) + "\u00a0%";
    const right = label === decided;
    const lines = {
      verdict: (right ? "\u2713 " : "\u2717 predicted ") + classes.names[decided] + ", " + sure,
      truth: right ? "" : "true class " + classes.names[label],
      values: this.samples.text ? this.samples.text(i) : "",
      name: this.samples.names[i],
    };
    for (const [name, text] of Object.entries(lines)) this.card.querySelector("." + name).textContent = text;
    this.card.classList.toggle("mistake", !right);
    const picture = this.card.querySelector(".picture");
    picture.hidden = !this.samples.draw;
    if (this.samples.draw) this.samples.draw(picture, i);
    if (speak) this.spoken.textContent = Object.values(lines).filter(Boolean).join(", ");
    const [width, height] = [this.card.offsetWidth, this.card.offsetHeight];
    const left = this.x[i] + 16 + width > this.size.width ? this.x[i] - 16 - width : this.x[i] + 16;
    this.card.style.left = Math.max(0, Math.min(left, this.size.width - width)) + "px";
    const below = this.y[i] + 16 + height > this.size.height ? this.y[i] - 16 - height : this.y[i] + 16;
    this.card.style.top = Math.max(0, below) + "px";
  }
}

function stamp(marker, radius, side, scale, edge) {
  const width = Math.ceil(side * scale);
  const canvas = new OffscreenCanvas(width, width);
  const context = canvas.getContext("2d");
  context.scale(width / side, width / side);
  context.translate(side / 2, side / 2);
  context.scale(radius / 6, radius / 6);
  context.lineWidth = (0.6 * 6) / radius;
  context.fillStyle = marker.colour;
  context.strokeStyle = edge;
  context.globalAlpha = 0.85;
  context.fill(marker.shape);
  context.stroke(marker.shape);
  return canvas.transferToImageBitmap();
}

function rule(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
