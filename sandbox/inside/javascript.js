// The tool's side of a run in JavaScript, as runner.py is of one in Python.
// Deno runs this file without any permission. The job comes by its first stream and the answer
// leaves by its second, which are one socket; all that a tool prints goes to the third.

const CODE = /^[A-Z][A-Z0-9_]{2,39}$/;
const IDENTIFIER = /^[A-Za-z_$][\w$]{0,63}$/;
const NO_MEMORY = "Array buffer allocation failed";
const MESSAGE_LENGTH = 500;
const [stdin, stdout, stderr, exit] = [Deno.stdin, Deno.stdout, Deno.stderr, Deno.exit];

/** End the run as failed with a code of the tool's own; `throw {code, message}` does the same. */
class ToolError extends Error {
  constructor(code, message = "") {
    super(message);
    this.code = code;
  }
}

/** An end with a code that is decided here. */
class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

function readExactly(length) {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length;) {
    const count = stdin.readSync(bytes.subarray(at));
    if (count === null) exit(0); // the slot was retired without having been used
    at += count;
  }
  return bytes;
}

function readJob() {
  const length = new DataView(readExactly(4).buffer).getUint32(0);
  return JSON.parse(new TextDecoder().decode(readExactly(length)));
}

/** Send the one frame of this process and end it. */
function answer(kind, text) {
  const payload = new TextEncoder().encode(kind + text);
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, payload.length);
  for (const bytes of [length, payload]) {
    for (let at = 0; at < bytes.length;) at += stdout.writeSync(bytes.subarray(at));
  }
  exit(0);
}

function fail(error) {
  answer("E", JSON.stringify(describe(error)));
}

function describe(error) {
  if (error instanceof Failure || isToolError(error)) {
    return { code: error.code, message: error.message.slice(0, MESSAGE_LENGTH) };
  }
  if (error instanceof RangeError && error.message === NO_MEMORY) {
    return { code: "MEMORY_LIMIT", message: "the tool asked for more memory than it has" };
  }
  return { code: "TOOL_ERROR", message: `${summary(error)}${place(error)}` };
}

/** Errors of the runtime have codes as well, which say nothing about the tool's task. */
function isToolError(error) {
  const own = error instanceof ToolError || !(error instanceof Error);
  const { code, message } = own && error ? error : {};
  return typeof code === "string" && CODE.test(code) && typeof message === "string";
}

/** Deno wraps what its parser says: its first line is the reason, the others draw a picture. */
function summary(error) {
  const text = String(error?.message ?? error);
  if (!(error instanceof Error)) return text.slice(0, MESSAGE_LENGTH);
  if (text.startsWith("SyntaxError: ")) return text.split("\n")[0].slice(0, MESSAGE_LENGTH);
  return `${error.name}${text && ": "}${text.slice(0, MESSAGE_LENGTH)}`;
}

/** The innermost line of the tool's own module that the error passed through. */
function place(error) {
  const found = error instanceof Error && String(error.stack).match(inTool);
  return found ? ` (line ${found[1]})` : "";
}

/**
 * JSON.stringify turns into null, or leaves out, what JSON cannot say. The digits of an integer
 * beyond 2^53 are not those that the tool was given, unless it is a BigInt.
 */
function sayable(key, value) {
  if (typeof value === "bigint") return JSON.rawJSON(String(value));
  const at = key ? `key ${key}` : "the top";
  const odd = typeof value === "function" || typeof value === "symbol";
  if (odd || (typeof value === "number" && !Number.isFinite(value))) {
    throw new TypeError(`${String(value).slice(0, 40)} at ${at}`);
  }
  if (Number.isInteger(value) && Math.abs(value) > 2 ** 53 && Math.abs(value) < 1e21) {
    throw new TypeError(`${value} at ${at} is beyond 2^53 and may be inexact; return a BigInt`);
  }
  return value;
}

function encode(value) {
  try {
    return JSON.stringify(value ?? null, sayable);
  } catch (error) {
    throw new Failure("INVALID_RESULT", `the result is not JSON: ${summary(error)}`);
  }
}

/** Import the tool's source as a module of its own that exports its entry point to us. */
async function load(source, name) {
  const nothing = new Failure("TOOL_ERROR", `the tool has no function '${name}'`);
  if (!IDENTIFIER.test(name)) throw nothing;
  const text = `${source}\nexport { ${name} as toolcribEntryPoint };`;
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  inTool = new RegExp(`${url}:(\\d+):\\d+`);
  try {
    const { toolcribEntryPoint } = await import(url);
    if (typeof toolcribEntryPoint === "function") return toolcribEntryPoint;
  } catch (error) {
    if (!String(error?.message).startsWith(`Export '${name}' is not defined`)) throw error;
  }
  throw nothing;
}

/** The second stream is taken, so what would be printed there goes to the third. */
function redirectPrinting() {
  const print = console.error;
  const [counts, began] = [new Map(), new Map()];
  const elapsed = (label) => `${label}: ${performance.now() - (began.get(label) ?? 0)}ms`;
  for (const name of ["log", "info", "debug", "dirxml", "group", "groupCollapsed"]) {
    console[name] = print;
  }
  console.dir = console.table = (value) => print(value);
  console.count = (label = "default") => {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    print(`${label}: ${counts.get(label)}`);
  };
  console.countReset = (label = "default") => counts.delete(label);
  console.time = (label = "default") => began.set(label, performance.now());
  console.timeLog = (label = "default", ...more) => print(elapsed(label), ...more);
  console.timeEnd = (label = "default") => print(elapsed(label));
  console.clear = () => undefined;
  Object.defineProperty(Deno, "stdout", { value: stderr });
}

/** Node's `process` takes longer to load than all the rest, so only a tool that asks has it. */
function redirectProcess() {
  const { get } = Object.getOwnPropertyDescriptor(globalThis, "process");
  const value = () => {
    const process = get.call(globalThis);
    Object.defineProperty(process, "stdout", { get: () => process.stderr, configurable: true });
    Object.defineProperty(globalThis, "process", { value: process, writable: true });
    return process;
  };
  Object.defineProperty(globalThis, "process", { get: value, configurable: true });
}

async function run(job) {
  const main = await load(job.program.source, job.program.entry_point);
  answer("R", encode(await main(job.parameters)));
}

let inTool = /(?!)/;
addEventListener("error", (event) => fail(event.error));
addEventListener("unhandledrejection", (event) => fail(event.reason));
addEventListener("beforeunload", () => {
  fail(new Failure("TOOL_ERROR", "the tool waits for what will never happen"));
});
redirectPrinting();
redirectProcess();
globalThis.ToolError = ToolError;
run(readJob()).catch(fail);
