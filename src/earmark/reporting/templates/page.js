"use strict";
// Each heading of a sortable table becomes a button that sorts by its column. Cells without a value come last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const usual = head.dataset.first || "descending";
      const other = usual === "ascending" ? "descending" : "ascending";
      const direction = head.getAttribute("aria-sort") === usual ? other : usual;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      const isText = head.classList.contains("text");
      const key = (row) => {
        const cell = row.cells[column];
        return "value" in cell.dataset ? Number(cell.dataset.value) : isText ? cell.textContent.trim() : null;
      };
      const compare = (a, b) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      };
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => compare(a, b));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
// Starting one player pauses the others.
document.addEventListener("play", (event) => {
  for (const each of document.querySelectorAll("audio")) if (each !== event.target) each.pause();
}, true);
