// Calls that wait, by keys: j and k move, x picks, a approves, d asks for a reason to refuse, Enter
// opens. Every button does the same without this file.
"use strict";

const cards = [...document.querySelectorAll("article.held")];
const together = document.querySelector(".together");
const single = document.querySelector("form.word");
const writing = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog";
let refusing = null;

for (const card of cards) card.tabIndex = -1;

const current = () => cards.indexOf(document.activeElement?.closest("article.held"));
const move = (by) => {
  if (!cards.length) return;
  const at = current();
  const next = cards[Math.max(0, Math.min(cards.length - 1, at < 0 ? 0 : at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
};
const picked = () => document.querySelectorAll(".pick input:checked").length > 0;

// Where a word would be said: of all that are picked, else of the call one is at.
const place = () => {
  if (single && !cards.length) return single;
  if (picked() && together) return together;
  if (picked()) return document.querySelector(".pick input:checked").closest("article.held");
  return cards[current()];
};
const pick = () => cards[current()]?.querySelector(".pick input")?.click();
const approve = () => place()?.querySelector("button.primary")?.click();
const refuse = () => {
  refusing = place()?.querySelector("input[name^=reason]") ?? null;
  refusing?.focus();
  refusing?.scrollIntoView({ block: "nearest" });
};
const open = (event) => {
  if (cards.includes(event.target)) event.target.querySelector("h2 a").click();
};
const keys = {
  j: () => move(1), k: () => move(-1), x: pick, a: approve, d: refuse, Enter: open,
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!document.getElementById("shortcuts-on")?.checked) return;
  if (event.target === refusing && event.key === "Enter" && refusing.value.trim()) {
    refusing.closest(".word, .together").querySelector("button.danger").click();
  } else if (event.target === refusing && event.key === "Escape") {
    (refusing.closest("article.held") ?? cards[0])?.focus();
  } else if (!event.target.closest(writing) && keys[event.key]) {
    if (event.key === "Enter" && !cards.includes(event.target)) return;
    keys[event.key](event);
  } else return;
  event.preventDefault();
});
document.addEventListener("focusout", (event) => {
  if (event.target === refusing) refusing = null;
});

// How long each still waits.
const left = (time) => {
  const seconds = Math.floor((new Date(time.dateTime) - Date.now()) / 1000);
  if (seconds <= 0) return "is over";
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours > 0) return `${hours} h ${minutes} min left`;
  return minutes > 4 ? `${minutes} min left` : `${minutes}:${String(seconds % 60).padStart(2, "0")} left`;
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
