// The classes that are shown, the same in every plot, and the style in which each class is drawn.

const classes = {
  names: data.classes,
  shown: data.classes.map(() => true),
  listeners: [],
  buttons: Array.from(document.querySelectorAll(".legend button[data-class]")),

  set(change) {
    this.shown = this.shown.map((before, c) => change(before, c));
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(this.shown[button.dataset.class]));
    this.tell();
  },

  tell() {
    for (const listener of this.listeners) listener();
  },

  swatch(c) {
    return this.buttons[c].querySelector("svg");
  },

  // The CSS class that sets the colour of a class, and whether the class has the first shape.
  style(c) {
    const [first, own] = [0, c].map((k) => this.swatch(k).querySelector("path").getAttribute("d"));
    return { colour: this.swatch(c).classList.item(1), plain: own === first };
  },

  // The colour and outline of a class as the legend currently shows them, in light or dark mode.
  marker(c) {
    const swatch = this.swatch(c);
    const outline = swatch.querySelector("path").getAttribute("d");
    return { colour: getComputedStyle(swatch).color, shape: new Path2D(outline) };
  },
};

for (const button of classes.buttons) {
  const c = Number(button.dataset.class);
  button.addEventListener("click", () => classes.set((before, k) => (k === c ? !before : before)));
}
for (const button of document.querySelectorAll(".legend button[data-classes]")) {
  button.addEventListener("click", () => classes.set(() => button.dataset.classes === "all"));
}

function pageColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
