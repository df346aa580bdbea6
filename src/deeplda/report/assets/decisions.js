// Decisions about the samples of an audit, by key or by button, and their download as CSV.

const data = JSON.parse(document.getElementById("data").textContent);
const cards = Array.from(document.querySelectorAll(".cards > li"));
const decisions = new Map();
// The decisions in their order, for undo: each has its card and the decision that it replaced.
const made = [];
const status = document.getElementById("decided");
const download = document.getElementById("download");
let saved = true;

function decide(card, decision) {
  made.push([card, decisions.get(card.dataset.row)]);
  show(card, decision);
}

function undo() {
  if (made.length === 0) return;
  const [card, before] = made.pop();
  show(card, before);
  focus(card);
}

// A sample may have a card in several sections; all of them show its decision.
function show(card, decision) {
  const row = card.dataset.row;
  if (decision === undefined) decisions.delete(row);
  else decisions.set(row, decision);
  for (const same of cards.filter((other) => other.dataset.row === row)) {
    same.dataset.decision = decision ?? "";
    for (const button of same.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.decision === decision));
    }
  }
  saved = decisions.size === 0;
  const all = Object.keys(data.rows).length.toLocaleString("en");
  status.textContent = `${decisions.size} of ${all} decided`;
  download.disabled = saved;
}

function focus(card) {
  if (!card) return;
  for (const other of cards) other.tabIndex = other === card ? 0 : -1;
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

// The card above or below: in the next row of cards, the one nearest to this one.
function vertical(card, direction) {
  const box = card.getBoundingClientRect();
  const middle = box.left + box.width / 2;
  const beyond = cards
    .map((other) => [other, other.getBoundingClientRect()])
    .filter(([, b]) => (direction > 0 ? b.top > box.top + 1 : b.top < box.top - 1));
  const tops = beyond.map(([, b]) => b.top);
  const top = direction > 0 ? Math.min(...tops) : Math.max(...tops);
  const far = ([, b]) => Math.abs(b.left + b.width / 2 - middle);
  const row = beyond.filter(([, b]) => Math.abs(b.top - top) < 2);
  return row.sort((a, b) => far(a) - far(b))[0]?.[0];
}

const moves = {
  ArrowLeft: (card) => cards[cards.indexOf(card) - 1],
  ArrowRight: (card) => cards[cards.indexOf(card) + 1],
  ArrowUp: (card) => vertical(card, -1),
  ArrowDown: (card) => vertical(card, 1),
};
const choices = { y: "accepted", n: "rejected", d: "dropped" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // The current card, which is marked, even if the focus is elsewhere.
  const card = cards.find((other) => other.tabIndex === 0);
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!card || !(key in moves || key in choices || key === "u")) return;
  event.preventDefault();
  if (key === "u") undo();
  else if (key in moves) focus(moves[key](card) ?? card);
  else if (card.querySelector(`[data-decision=${choices[key]}]`)) {
    decide(card, choices[key]);
    focus(moves.ArrowRight(card) ?? card);
  }
});

for (const card of cards) {
  card.addEventListener("focus", () => {
    for (const other of cards) other.tabIndex = other === card ? 0 : -1;
  });
  for (const button of card.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const before = decisions.get(card.dataset.row);
      decide(card, before === button.dataset.decision ? undefined : button.dataset.decision);
      focus(card);
    });
  }
}

download.addEventListener("click", () => {
  const lines = Array.from(decisions, ([row, decision]) => `${data.rows[row]},${decision}`);
  const text = [data.header, ...lines].join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = data.file;
  link.click();
  URL.revokeObjectURL(link.href);
  saved = true;
});

addEventListener("beforeunload", (event) => {
  if (!saved) event.preventDefault();
});

if (cards.length) {
  cards[0].tabIndex = 0;
  cards[0].focus({ preventScroll: true });
}
