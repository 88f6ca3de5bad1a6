// Rows of arguments are moved by keys, and validated while they are edited. Without this file the
// buttons of the rows move them, and saving marks errors.

let next = "";  // the cell that gets the focus

const KEYS = { ArrowUp: "up", ArrowDown: "down" };
const STEP = { up: -1, down: 1 };

document.addEventListener("keydown", (event) => {
  const what = KEYS[event.key];
  const row = what && event.altKey && event.target.closest("[data-row]");
  if (!row) return;
  event.preventDefault();
  const button = row.querySelector(`[data-move=${what}]`);
  if (button.disabled) return;
  const at = Number(row.dataset.row);
  next = event.target.id.replace(/\d+/, at + STEP[what]);
  button.click();
});

const mark = (says) => {
  const wrong = says.dataset.wrong.split(" ");
  for (const cell of says.closest("[data-row]").querySelectorAll("[name^=argument-]")) {
    if (wrong.includes(cell.name.split("-")[2])) cell.setAttribute("aria-invalid", "true");
    else cell.removeAttribute("aria-invalid");
  }
};

document.addEventListener("htmx:afterSettle", () => {
  document.querySelectorAll(".row-flaws").forEach(mark);
  const cell = next && document.getElementById(next);
  next = "";
  if (cell && !cell.disabled) cell.focus();
});
