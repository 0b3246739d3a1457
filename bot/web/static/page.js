// The key / puts the cursor into the search box of the page.
"use strict";

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const box = document.getElementById("find");
  if (!box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
