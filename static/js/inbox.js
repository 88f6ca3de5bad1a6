// Keyboard use of held calls: j and k move, x selects, a goes to the button that approves, which
// Enter presses, d asks for a reason to refuse, Enter opens. Every button does the same without
// this file, and no single letter decides.
"use strict";

const writing = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog";
let refusing = null;

// Queried each time, since live updates replace the cards.
const cards = () => [...document.querySelectorAll("article.approval")];
const current = () => document.activeElement?.closest("article.approval");
const move = (by) => {
  const all = cards();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
  next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
};

// The element with the decision's buttons: of all selected calls, else of the current call.
const place = () => {
  const picked = document.querySelector(".pick input:checked");
  if (picked) return document.querySelector(".bulk-decision") ?? picked.closest("article.approval");
  return current() ?? (cards().length ? null : document.querySelector("form.decision-form"));
};
const pick = () => current()?.querySelector(".pick input")?.click();
const goTo = (element) => {
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
};
const approve = () => goTo(place()?.querySelector("button.primary"));
const refuse = () => {
  refusing = place()?.querySelector("input[name^=reason]") ?? null;
  goTo(refusing);
};
const open = () => current()?.querySelector("h2 a")?.click();
const keys = { j: () => move(1), k: () => move(-1), x: pick, a: approve, d: refuse, Enter: open };

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!document.getElementById("shortcuts-on")?.checked) return;
  if (event.target === refusing && event.key === "Enter" && refusing.value.trim()) {
    refusing.closest(".decision-form").querySelector("button.danger").click();
  } else if (event.target === refusing && event.key === "Escape") {
    refusing.blur();
    move(0);
  } else if (!event.target.closest(writing) && keys[event.key]) {
    if (event.key === "Enter" && !event.target.matches("article.approval")) return;
    keys[event.key]();
  } else return;
  event.preventDefault();
});
document.addEventListener("focusout", (event) => {
  if (event.target === refusing) refusing = null;
});

// A card that was decided is replaced by its outcome, which keeps the place of the keys.
document.addEventListener("htmx:afterSwap", (event) => {
  const outcome = document.querySelector("article.approval[data-decided]:not([tabindex])");
  if (!outcome || !event.target.closest?.("form.queue")) return;
  outcome.tabIndex = -1;
  outcome.focus();
});

// The remaining time of each call.
const left = (time) => {
  const seconds = Math.floor((new Date(time.dateTime) - Date.now()) / 1000);
  if (seconds <= 0) return "now";
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours > 0) return `in ${hours} h ${minutes} min`;
  return minutes > 4 ? `in ${minutes} min` : `in ${minutes}:${String(seconds % 60).padStart(2, "0")}`;
};
const count = () => {
  for (const time of document.querySelectorAll("time[data-until]")) {
    const text = left(time);
    if (time.textContent !== text) time.textContent = text;
    if (new Date(time.dateTime) - Date.now() < 300_000) time.dataset.tone = "bad";
  }
};
count();
setInterval(count, 1000);
