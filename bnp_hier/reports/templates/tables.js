// Tables whose rows are sorted by a column: its heading is a button.
function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) return;
  const words = new Intl.Collator(undefined, { numeric: true });
  function key(row, column) {
    const cell = row.cells[column], text = cell.textContent;
    if ("value" in cell.dataset) return Number(cell.dataset.value);
    if (text === "–" || text === "") return NaN;
    return text;
  }
  function compare(a, b) {
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    const [x, y] = [parseFloat(a), parseFloat(b)];
    return typeof a === "number" ? a - b : x - y || words.compare(a, b);
  }
  heads.forEach((head, column) => {
    const button = document.createElement("button"), name = head.textContent;
    if (!name) return;
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      const there = rows.filter(([value]) => !Number.isNaN(value)), missing = rows.filter(([value]) => Number.isNaN(value));
      there.sort(([a], [b]) => (up ? compare(a, b) : compare(b, a)));
      body.append(...[...there, ...missing].map(([, row]) => row)); // missing values are last in both directions
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
    head.replaceChildren(button);
  });
  table.classList.add("sortable");
}
document.querySelectorAll("table").forEach(sortable);
