// The command palette, opened by Ctrl or Cmd and K, or by its button. Without this file the button
// is a link to a page with the same results.
"use strict";

{
  const palette = document.getElementById("palette");
  const field = document.getElementById("go-to");
  const goals = document.getElementById("goals");
  const said = document.getElementById("palette-status");
  let awaited = false; // Enter was pressed before the response arrived

  const links = () => [...goals.querySelectorAll("a")];
  const answered = () => goals.querySelector("[data-q]")?.dataset.q === field.value.trim();

  const show = () => {
    if (palette.open) return;
    palette.showModal();
    field.select();
    htmx.trigger(field.form, "opened");
  };
  const goFirst = () => {
    awaited = !answered();
    if (!awaited) links()[0]?.click();
  };
  const step = (by) => {
    const stops = [field, ...links()];
    const now = Math.max(0, stops.indexOf(document.activeElement));
    stops[(now + by + stops.length) % stops.length].focus();
  };

  if (palette) {
    document.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      event.preventDefault();
      if (palette.open) palette.close();
      else show();
    });
    document.addEventListener("click", (event) => {
      if (event.target === palette) palette.close(); // outside of the dialog
      if (!event.target.closest("[data-opens=palette]") || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      show();
    });
    palette.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) step(by);
      else if (event.key === "Enter" && event.target === field) goFirst();
      else return;
      event.preventDefault();
    });
    field.addEventListener("input", () => { awaited = false; });
    goals.addEventListener("htmx:afterSettle", () => {
      const found = goals.querySelectorAll("li").length;
      said.textContent = found ? `${found} found` : "Nothing is called that.";
      said.dataset.note = found ? "found" : "nothing-found";
      if (awaited) goFirst();
    });
  }
}
