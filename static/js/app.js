// What htmx leaves to us. Every page works without this file.
"use strict";

const notice = (text) => {
  const box = document.createElement("p");
  box.className = "banner";
  box.dataset.tone = "bad";
  box.textContent = text;
  document.getElementById("notice").replaceChildren(box);
};

document.documentElement.classList.add("scripted");

// Parts that follow something rest while nobody looks, and catch up when somebody does.
document.addEventListener("htmx:beforeRequest", (event) => {
  const live = event.target.closest("[data-live]") === event.target;
  if (live && document.hidden) event.preventDefault();
  if (!live) document.getElementById("notice").replaceChildren();
});

// A refusal names the place where it is to be read; any other error is told in words of ours.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.getResponseHeader("HX-Retarget")) event.detail.shouldSwap = true;
});
document.addEventListener("htmx:responseError", (event) => {
  if (!event.detail.xhr.getResponseHeader("HX-Retarget")) {
    notice("That did not work. Reload the page and try again.");
  }
});
document.addEventListener("htmx:sendError", () => notice("The server does not answer."));
document.addEventListener("htmx:timeout", () => notice("The server took too long to answer."));

// A form that comes back with errors leads to the first of them.
document.addEventListener("htmx:afterSettle", (event) => {
  const flawed = event.target.querySelector("form [aria-invalid]");
  if (flawed) flawed.focus();
});

document.addEventListener("said", (event) => {
  document.getElementById("said").textContent = event.detail.text;
});

// What is said of a line of a text leads to it.
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
