// Keyboard for the grid of a branch: arrows, Home and End move between cells, Enter opens one; a click opens green ones.
"use strict";

const useKeyboard = () => {
  const table = document.querySelector("table.hud");
  if (!table || !table.tBodies.length) return;
  const rows = [...table.tBodies[0].rows];
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
  const region = table.closest("[tabindex]") || table;

  // Without a link of its own a cell's address is made of its row and its column; of a folded one the group is opened.
  const address = (cell) => {
    const own = cell.querySelector("a");
    if (own || !cell.textContent) return own && own.href;
    const key = heads[cell.cellIndex].dataset.key;
    const folded = key ? null : heads[cell.cellIndex].querySelector("a");
    return key ? `${table.dataset.cells}${cell.parentNode.dataset.sha}.${key}#cell` : folded && folded.href;
  };
  const open = (cell) => {
    const to = address(cell);
    if (to) location.assign(to);
  };
  const focus = (row, column) => {
    const cell = row && row.cells[Math.max(0, Math.min(column, row.cells.length - 1))];
    if (!cell) return;
    cell.tabIndex = -1;
    cell.focus();
  };
  const first = () => {
    const [sha, key] = (new URLSearchParams(location.search).get("cell") || "").split(".");
    const column = key ? [...heads].findIndex((head) => head.dataset.key === key) : -1;
    const row = rows.find((one) => one.dataset.sha === sha);
    return row && column > 0 ? [row, column] : [rows[0], 1];
  };

  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  region.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const cell = event.target.closest("tbody th, tbody td");
    if (event.key === "Enter") {
      if (cell && !event.target.closest("a")) open(cell);
      return;
    }
    const move = MOVES[event.key];
    const edge = { Home: 1, End: Infinity }[event.key];
    if (!move && !edge) return;
    event.preventDefault();
    if (!cell) return focus(...first());
    if (edge) return focus(cell.parentNode, edge);
    focus(rows[rows.indexOf(cell.parentNode) + move[0]], cell.cellIndex + move[1]);
  });
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("tbody td");
    if (cell && !event.target.closest("a")) open(cell);
  });
};
useKeyboard();
document.addEventListener("refreshed", useKeyboard);
