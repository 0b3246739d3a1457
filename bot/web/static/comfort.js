// Comfort for every page, which is complete without it: local times, tables sorted by a click, refreshing in place.
"use strict";

(() => {
  const PLAIN = "table:not(.hud, .grid, .log, .timeline, .health)"; // tables that a click may sort
  const UNITS = { s: 1, min: 60, h: 3600, d: 86400, "%": 1, B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
  const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

  // The reader's own time: beside every age, and instead of the UTC of a time of day.
  const showTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = `${clock.format(at)} · ${time.dateTime}`;
      if (time.classList.contains("clock")) time.textContent = minute.format(at);
    }
  };

  // What a cell is sorted by: its time, the number or the amount it begins with, else its text.
  const value = (cell) => {
    if (!cell) return "";
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const time = cell.querySelector("time[datetime]");
    if (time) return Date.parse(time.dateTime);
    const text = cell.textContent.trim().replace(/^[^\p{L}\p{N}]+/u, "");
    const amounts = [...text.matchAll(/^([\d,]+(?:\.\d+)?)\s*(%|[KMGT]?B|min|s|h|d)?(?![\p{L}\p{N}])(?:\s+(\d+)\s*(min|h)(?!\p{L}))?/gu)];
    if (!amounts.length) return text.toLocaleLowerCase();
    const [, first, unit, second, smaller] = amounts[0];
    return Number(first.replaceAll(",", "")) * (UNITS[unit] || 1) + Number(second || 0) * (UNITS[smaller] || 0);
  };
  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    if (typeof one === "number") return 1; // what has no value comes last, the largest first
    return typeof other === "number" ? -1 : String(one).localeCompare(String(other));
  };
  const sortBy = (table, column, direction) => {
    const heads = [...table.tHead.rows[0].cells];
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
      rows.sort((one, other) => direction * compare(one[0], other[0]));
      body.append(...rows.map(([, row]) => row));
    }
  };
  const makeSortable = (root) => {
    for (const table of root.querySelectorAll(PLAIN)) {
      const head = table.tHead;
      if (!head || head.rows.length !== 1 || head.querySelector("a, [colspan], [rowspan]")) continue;
      if ([...table.tBodies].every((body) => body.rows.length < 3) || table.tBodies[0].querySelector("[colspan], [rowspan]")) continue;
      [...head.rows[0].cells].forEach((cell, column) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...cell.childNodes);
        cell.append(button);
        button.addEventListener("click", () => {
          const falling = cell.getAttribute("aria-sort") === "descending";
          const first = cell.classList.contains("n") ? -1 : 1; // of numbers the largest are asked for
          sortBy(table, column, cell.hasAttribute("aria-sort") ? (falling ? 1 : -1) : first);
        });
      });
    }
  };

  // What a reader has opened, sorted, scrolled to or chosen, by where it is on the page.
  const path = (element) => {
    const steps = [];
    for (let at = element; at && at.id !== "main"; at = at.parentElement) {
      if (at.id) return [`#${CSS.escape(at.id)}`, ...steps].join(" > ");
      steps.unshift(`${at.localName}:nth-of-type(${1 + [...at.parentElement.children].filter((one) => one.localName === at.localName).indexOf(at)})`);
    }
    return ["#main", ...steps].join(" > ");
  };
  const remember = (main) => {
    const opened = [...main.querySelectorAll("details")].map((one) => [path(one), one.open, one.firstElementChild.textContent]);
    const scrolled = [...main.querySelectorAll(".scroll")].map((one) => [path(one), one.scrollLeft, one.scrollTop]);
    const sorted = [...main.querySelectorAll("th[aria-sort]:has(> .sort)")].map((one) => [path(one), one.getAttribute("aria-sort")]);
    const focused = main.contains(document.activeElement) ? path(document.activeElement) : null;
    return (now) => {
      const find = (where) => document.querySelector(where);
      for (const [where, open, words] of opened) {
        const one = find(where);
        // another one may be there by now
        if (one && one.localName === "details" && one.firstElementChild.textContent.split(" ")[0] === words.split(" ")[0]) one.open = open;
      }
      for (const [where, order] of sorted) {
        const head = find(where);
        if (head) sortBy(head.closest("table"), head.cellIndex, order === "ascending" ? 1 : -1);
      }
      for (const [where, left, top] of scrolled) {
        const one = find(where);
        if (one) Object.assign(one, { scrollLeft: left, scrollTop: top });
      }
      if (focused && find(focused)) find(focused).focus({ preventScroll: true });
    };
  };

  let seconds = 0; // between two looks at the page; 0: none
  let timer = 0;
  const schedule = (page) => {
    seconds = Number(page.documentElement.dataset.refresh || 0);
    clearTimeout(timer);
    if (seconds) timer = setTimeout(refresh, seconds * 1000);
  };
  const replace = (page) => {
    const [here, there] = [document, page].map((one) => one.getElementById("main"));
    if (!there) return;
    const restore = remember(here);
    here.replaceWith(document.adoptNode(there));
    for (const part of ["footer", "link[rel=icon]", "#refreshing"]) {
      const [old, made] = [document, page].map((one) => one.querySelector(part));
      if (old && made) old.replaceWith(document.adoptNode(made));
      else if (old) old.remove(); // what ran has ended: there is nothing to wait for
    }
    document.title = page.title;
    start();
    restore();
    document.dispatchEvent(new Event("refreshed"));
  };
  // Not while somebody writes or selects something, nor where nobody looks.
  const isBusy = () =>
    document.hidden || Boolean(document.activeElement?.closest("main :is(input, select, textarea)")) || !getSelection().isCollapsed;
  const refresh = async () => {
    let shown = document;
    try {
      if (isBusy()) return;
      const answer = await fetch(location.href.split("#")[0], { headers: { Accept: "text/html" } });
      if (!answer.ok) throw new Error(answer.statusText);
      shown = new DOMParser().parseFromString(await answer.text(), "text/html");
      replace(shown);
    } catch {
      // what stands here stays; the next attempt may succeed
      document.getElementById("refreshing")?.classList.add("bad");
    } finally {
      schedule(shown);
    }
  };

  const start = () => {
    showTimes(document);
    makeSortable(document.getElementById("main"));
  };
  start();
  schedule(document);
  document.addEventListener("visibilitychange", () => seconds && refresh());
})();
