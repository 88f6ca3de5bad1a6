// Synchronizes the form of a call and its JSON. Without this file the user chooses which is sent.

// Numbers are kept as they were written, where the browser can: 1.0 stays 1.0.
const exact = (key, value, context) =>
  typeof value === "number" && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
const parse = (text) => JSON.parse(text, exact);
const isNumber = (value) => typeof value === "number" || Boolean(JSON.isRawJSON && JSON.isRawJSON(value));
const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isNumber(value);
const pretty = (value) => JSON.stringify(value, null, 2);

const fieldsOf = (form) =>
  [...form.querySelectorAll("[data-parameter]")].map((box) => ({
    ...box.dataset,
    rest: box.dataset.key === "p.rest",
    control: box.querySelector("input, select, textarea"),
  }));

// The value of a field, or an error where it is invalid.
const WHOLE = /^[+-]?\d{1,17}$/;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const read = ({ kind, widget, control }) => {
  const text = control.value;
  if (widget === "text" || widget === "area") return text;
  if (widget !== "number") return parse(text);
  const trimmed = text.trim();
  if (!(kind === "integer" ? WHOLE : NUMBER).test(trimmed)) throw new SyntaxError(trimmed);
  return parse(trimmed.replace(/^([+-]?)0+(?=\d)/, "$1").replace("+", ""));
};

const entriesOf = (fields) => {
  const named = new Map();
  const rest = fields.find((field) => field.rest);
  if (rest && rest.control.value.trim()) {
    const more = parse(rest.control.value);
    if (!isObject(more)) throw new SyntaxError("not an object");
    Object.entries(more).forEach(([name, value]) => named.set(name, value));
  }
  fields.filter((field) => !field.rest).forEach((field) => {
    const said = field.control.value !== "" || (field.required && field.kind === "string");
    if (said) named.set(field.parameter, read(field));
  });
  return named;
};

const written = (named) => {
  const lines = [...named].map(([name, value]) =>
    `${JSON.stringify(name)}: ${pretty(value)}`.replaceAll("\n", "\n  "));
  return lines.length ? `{\n  ${lines.join(",\n  ")}\n}` : "{}";
};

const sorted = (value) => {
  if (Array.isArray(value)) return `[${value.map(sorted).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${sorted(value[name])}`).join()}}`;
};
const same = (one, other) =>
  one.size === other.size &&
  [...one].every(([name, value]) => other.has(name) && sorted(value) === sorted(other.get(name)));

// A value as the text of a field; empty where the field cannot represent it.
const shown = ({ widget, control }, value) => {
  if (widget === "text" || widget === "area") return typeof value === "string" ? value : "";
  if (widget === "number") return isNumber(value) ? JSON.stringify(value) : "";
  if (widget !== "select") return pretty(value);
  const text = sorted(value);
  const option = [...control.options].find((one) => one.value && sorted(parse(one.value)) === text);
  return option ? option.value : "";
};

const fill = (fields, named) => {
  const left = new Map(named);
  fields.filter((field) => !field.rest).forEach((field) => {
    field.control.value = left.has(field.parameter) ? shown(field, left.get(field.parameter)) : "";
    left.delete(field.parameter);
  });
  const rest = fields.find((field) => field.rest);
  if (rest) rest.control.value = left.size ? written(left) : "";
};

const say = (form, note, text) => {
  const place = form.querySelector("[data-says]");
  if (place.textContent === text) return;
  const said = document.createElement("span");
  said.dataset.note = note;
  said.textContent = text;
  place.replaceChildren(said);
};
const sayNothing = (form) => form.querySelector("[data-says]").replaceChildren();
const choose = (form, which) => { form.querySelector(`[name=sends][value=${which}]`).checked = true; };

const formChanged = (form) => {
  choose(form, "form");
  try {
    form.elements.raw.value = written(entriesOf(fieldsOf(form)));
    sayNothing(form);
  } catch {
    say(form, "form-unreadable", "A field of the form cannot be read yet, so the JSON stands as it was.");
  }
};

const jsonChanged = (form) => {
  choose(form, "json");
  let value;
  try {
    value = parse(form.elements.raw.value);
  } catch {
    say(form, "json-unreadable", "This is no JSON yet, so the form stands as it was.");
    return;
  }
  if (!isObject(value)) {
    say(form, "json-no-object", "Give one JSON object, such as {\"path\": \"notes\"}.");
    return;
  }
  const named = new Map(Object.entries(value));
  const fields = fieldsOf(form);
  fill(fields, named);
  let held = false;
  try {
    held = same(entriesOf(fields), named);
  } catch { /* a value that cannot be read back is not represented */ }
  if (held) sayNothing(form);
  else say(form, "form-cannot-hold", "The form cannot hold all of this: the JSON is sent as it stands.");
};

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-play]");
  if (!form) return;
  if (event.target.name === "raw") jsonChanged(form);
  else if (event.target.closest("[data-parameter]")) formChanged(form);
});
