// What would trouble a reader here? Returns a list of sentences; the rules that axe-core calls serious, as far as they apply.
(() => {
  const found = [];
  const say = (rule, element) => found.push(`${rule}: ${element.outerHTML.slice(0, 160)}`);
  const seen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const name = (element) =>
    (element.getAttribute("aria-label") || element.textContent || element.getAttribute("title") || "").trim();
  const all = (selector) => [...document.querySelectorAll(selector)];

  if (!document.documentElement.lang) found.push("html has no lang");
  if (!document.title.trim()) found.push("no title");
  if (all("main").length !== 1) found.push("not exactly one main");
  if (all("h1").length !== 1) found.push("not exactly one h1");
  const ours = [...document.scripts].filter((one) => /\/static\/(page|grid|comfort)\.js\?/.test(one.src));
  if (document.scripts.length > ours.length) found.push("there are scripts");
  const stops = all("a[href]").some((link) => name(link) === "stop refreshing" && seen(link));
  if (all("html[data-refresh]").length !== Number(stops)) found.push("refreshes by itself and cannot be stopped, or not");
  if (document.documentElement.scrollWidth > window.innerWidth)
    found.push(`the page scrolls sideways: ${document.documentElement.scrollWidth} > ${window.innerWidth}`);
  for (const box of all(".scroll:has(> .jobs, > .cards)"))
    if (window.innerWidth < 600 && seen(box) && box.scrollWidth > box.clientWidth + 1) say("to be scrolled on a phone", box);

  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const mine = Number(heading.tagName[1]);
    if (level && mine > level + 1) say(`heading level skipped from ${level}`, heading);
    if (!name(heading)) say("empty heading", heading);
    level = mine;
  }
  const ids = all("[id]").map((element) => element.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) found.push(`id twice: ${id}`);
  for (const link of all("a[href], button, summary")) if (!name(link)) say("no name", link);
  for (const field of all("input:not([type=hidden]), select, textarea"))
    if (!field.labels.length || !name(field.labels[0])) say("no label", field);
  for (const drawing of all("svg"))
    if (drawing.getAttribute("aria-hidden") !== "true" && !(drawing.getAttribute("role") === "img" && name(drawing)))
      say("drawing without words", drawing);
  for (const cell of all("th")) if (!cell.scope) say("th without scope", cell);
  for (const region of all("[role=region], nav, section[aria-label]"))
    if (!region.getAttribute("aria-label")) say("region without a name", region);
  for (const box of all("body *")) {
    const style = getComputedStyle(box);
    const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY);
    if (scrolls && seen(box) && (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1))
      if (box.tabIndex < 0 && !box.querySelector("a[href], button, input")) say("scrolls, but not by keyboard", box);
  }

  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return { r: parts[0], g: parts[1], b: parts[2], a: parts.length > 3 ? parts[3] : 1 };
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.a > 0.99) return colour;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const looked = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || looked.has(element) || !seen(element) || element.closest(".hidden, .skip, option"))
      continue;
    looked.add(element);
    const style = getComputedStyle(element);
    const drawn = element.closest("svg") ? style.fill : style.color;
    const [one, two] = [light(parse(drawn)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, element);
    if (size < 11 && !element.closest("svg")) say(`text of ${size}px`, element);
  }
  return [...new Set(found)].slice(0, 20);
})();
