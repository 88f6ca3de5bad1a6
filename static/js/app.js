// Scripts beside htmx. Every page works without this file.
"use strict";

const notice = (note, text) => {
  const box = document.createElement("p");
  box.className = "banner";
  box.dataset.tone = "bad";
  box.dataset.note = note;
  box.textContent = text;
  document.getElementById("notice").replaceChildren(box);
};

document.documentElement.classList.add("scripted");

// What the form before did gets the focus, so that screen readers say it.
if (!location.hash) document.querySelector("main [data-note^=message-]")?.focus();

// Live parts pause while the page is hidden, and reload when it becomes visible.
document.addEventListener("htmx:beforeRequest", (event) => {
  const live = event.target.closest("[data-live]") === event.target;
  if (live && document.hidden) event.preventDefault();
  if (!live) document.getElementById("notice").replaceChildren();
});

// A refusal names its target element; any other error is shown with the product's own message.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.getResponseHeader("HX-Retarget")) event.detail.shouldSwap = true;
});
document.addEventListener("htmx:responseError", (event) => {
  if (!event.detail.xhr.getResponseHeader("HX-Retarget")) {
    notice("did-not-work", "That did not work. Reload the page and try again.");
  }
});
let lost = false;
const lose = (note, text) => {
  notice(note, text);
  lost = true;
};
document.addEventListener("htmx:sendError", () => lose("no-answer", "The server does not answer."));
document.addEventListener("htmx:timeout", () => lose("too-late", "The server took too long to answer."));

// A live part retries after an error, and removes the notice after a response.
document.addEventListener("htmx:afterRequest", (event) => {
  if (!lost || !event.detail.successful) return;
  document.getElementById("notice").replaceChildren();
  lost = false;
});

// After a form is swapped in, focus its first error, else its requested element.
document.addEventListener("htmx:afterSettle", (event) => {
  const flawed = event.target.querySelector("form [aria-invalid]");
  if (flawed) flawed.focus();
  else event.target.querySelector("[data-led-to]")?.scrollIntoView();
});

// A message for screen readers is also shown as a toast.
let shown = 0;
document.addEventListener("toast", (event) => {
  const said = document.getElementById("toast");
  said.textContent = event.detail.text;
  said.dataset.note = event.detail.note || "";
  said.className = "toast";
  clearTimeout(shown);
  shown = setTimeout(() => { said.className = "visually-hidden"; }, 5000);
});

// A finding about a line of a text links to the line.
document.addEventListener("click", (event) => {
  const said = event.target.closest("[data-line]");
  const area = said && document.getElementById(said.dataset.in);
  if (!area) return;
  const lines = area.value.split("\n");
  const start = lines.slice(0, said.dataset.line - 1).join("\n").length + (said.dataset.line > 1);
  area.focus();
  area.setSelectionRange(start, start + (lines[said.dataset.line - 1] || "").length);
  area.scrollTop = area.scrollHeight * ((said.dataset.line - 3) / lines.length);
});

// Keyboard shortcuts: / searches, g and a letter open a page, ? shows help. They are off while the
// user types in a field, and after the user turned them off in the help.
const shortcuts = document.getElementById("shortcuts");
const keysOn = document.getElementById("shortcuts-on");
const search = () => {
  const field = document.querySelector("main input[type=search]");
  if (field) field.focus();
  else location.assign(`${shortcuts.querySelector("[data-go=t]").href}#q`);
};
let going = -Infinity;
const press = (event) => {
  const goes = event.timeStamp - going < 1500 && shortcuts.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
  going = event.key === "g" ? event.timeStamp : -Infinity;
  if (goes) goes.click();
  else if (event.key === "/") search();
  else if (event.key === "?") shortcuts.showModal();
  else return;
  event.preventDefault();
};
if (shortcuts) {
  keysOn.checked = localStorage.getItem("shortcuts") !== "off";
  keysOn.addEventListener("change", () => localStorage.setItem("shortcuts", keysOn.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog");
    if (keysOn.checked && !writes && !event.ctrlKey && !event.metaKey && !event.altKey) press(event);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-opens=shortcuts]")) shortcuts.showModal();
  });
  if (location.hash === "#q") search();
}

// One checkbox selects all rows of a table.
document.addEventListener("change", (event) => {
  const name = event.target.dataset.picks;
  if (!name) return;
  for (const box of event.target.closest("table").querySelectorAll(`tbody input[name="${CSS.escape(name)}"]`)) {
    box.checked = event.target.checked;
  }
});

// Copies the address of a link, or the text of an element. Where the browser refuses, the address
// stands in the address bar and the text is selected: the page is not left.
const tell = (note, text) => document.dispatchEvent(new CustomEvent("toast", { detail: { note, text } }));
document.addEventListener("click", async (event) => {
  const control = event.target.closest("[data-copies-address], [data-copies-text]");
  if (!control) return;
  event.preventDefault();
  const place = document.getElementById(control.dataset.copiesText);
  try {
    await navigator.clipboard.writeText(place ? place.textContent : control.href);
    tell("copied", place ? "Copied." : "The address is copied.");
  } catch {
    if (place) getSelection().selectAllChildren(place);
    else history.replaceState(history.state, "", control.href);
    tell("not-copied", place ? "Selected. Press the keys that copy." : "Copy the address from the address bar.");
  }
});

// Rows of a form: a further one is a copy of the last, which is empty. Without this file a form has
// some empty rows, and gets more when it is saved.
const offerRows = () => {
  for (const button of document.querySelectorAll("[data-adds-row]")) button.hidden = false;
};
offerRows();
document.addEventListener("htmx:afterSettle", offerRows);
document.addEventListener("click", (event) => {
  const rows = event.target.closest("[data-adds-row]")?.closest("[data-rows]").querySelectorAll("[data-row]");
  if (!rows) return;
  const row = rows[rows.length - 1].cloneNode(true);
  for (const part of row.querySelectorAll("[name], [id], [for]")) {
    for (const name of ["name", "id", "for"]) {
      if (part.hasAttribute(name)) part.setAttribute(name, part.getAttribute(name).replace(/-\d+-/, `-${rows.length}-`));
    }
    if (part.matches("input")) part.value = "";
  }
  rows[rows.length - 1].after(row);
  row.querySelector("input").focus();
});
