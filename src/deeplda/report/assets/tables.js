// Sortable tables. A click on a heading sorts numbers in descending order and text from A to Z; a second click reverses
// the order.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(table.querySelectorAll("thead th"));
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const number = head.classList.contains("number");
      const first = number ? "descending" : "ascending";
      const second = number ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      sortRows(table.tBodies[0], column, number, order === "ascending" ? 1 : -1);
    });
  });
}

function sortRows(body, column, number, sign) {
  const value = (row) => row.cells[column].dataset.value;
  const compare = number
    ? (a, b) => Number(value(a)) - Number(value(b))
    : (a, b) => value(a).localeCompare(value(b), "en", { numeric: true });
  body.append(...Array.from(body.rows).sort((a, b) => sign * compare(a, b)));
}
