// Live parts of a page reload by htmx when a stream of server-sent events reports a change. Without
// a stream, each part polls at the interval of its data-every. The server decides what each part
// gets.
"use strict";

{
  const place = document.body.dataset.liveAt;
  const line = document.getElementById("live-line");
  const LONGEST_WAIT_S = 30;
  const SELDOM_S = 60; // also with a stream: ages change without an event
  const asked = new WeakMap();
  const missed = new Set(); // parts whose response arrived while a pointer button was pressed
  let pressed = false;
  let stream = null;
  let hears = false;
  let had = sessionStorage.getItem("live") === place; // else the endpoint may be unreachable
  let wait = 1;
  let again = 0;
  let following = "";

  const parts = () => [...document.querySelectorAll("[data-live][data-every]")];
  const topics = () => [...new Set(parts().map((part) => part.dataset.live).filter(Boolean))].sort();

  const ask = (part) => {
    asked.set(part, performance.now());
    htmx.trigger(part, "refresh");
  };
  const askAll = () => parts().forEach(ask);

  const say = (text) => {
    if (line.textContent !== text) line.textContent = text;
  };
  const hear = (now) => {
    hears = now;
    document.documentElement.dataset.stream = now ? "open" : "none";
  };

  const close = () => {
    clearTimeout(again);
    if (stream) stream.close();
    stream = null;
    hear(false);
    following = "";
    again = 0;
  };

  const lose = () => {
    close();
    if (had) say("Not live: trying again");
    again = setTimeout(open, wait * 1000 * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT_S);
  };

  const open = () => {
    close();
    const wanted = topics();
    if (!place || document.hidden || !wanted.length) return;
    following = wanted.join(" ");
    const address = `${place}?${new URLSearchParams(wanted.map((topic) => ["of", topic]))}`;
    stream = new EventSource(address, { withCredentials: true });
    stream.addEventListener("open", () => {
      had = true;
      hear(true);
      wait = 1;
      sessionStorage.setItem("live", place);
      say("");
      askAll(); // changes before the stream was open
    });
    stream.addEventListener("changed", (event) => setTimeout(askAll, Math.random() * Number(event.data)));
    stream.addEventListener("error", lose);
  };

  // Another part may have other topics.
  document.addEventListener("htmx:afterSettle", () => {
    const wanted = topics().join(" ");
    if (stream ? wanted !== following : wanted && !again) open();
    else if (!wanted) say("");
  });

  // A link that is replaced between press and release would lose the click.
  const release = () => {
    pressed = false;
    setTimeout(() => {
      missed.forEach((part) => part.isConnected && ask(part));
      missed.clear();
    });
  };
  addEventListener("pointerdown", (event) => (pressed = event.button === 0), true);
  for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, release, true);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { elt, triggeringEvent } = event.detail.requestConfig;
    if (!pressed || triggeringEvent?.type !== "refresh") return;
    event.detail.shouldSwap = false;
    missed.add(elt);
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      return;
    }
    wait = 1;
    open();
    askAll();
  });
  addEventListener("offline", lose);
  addEventListener("online", () => {
    wait = 1;
    open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());

  setInterval(() => {
    if (document.hidden) return;
    const now = performance.now();
    for (const part of parts()) {
      if (!asked.has(part)) asked.set(part, now);
      const every = hears && part.dataset.live ? SELDOM_S : Number(part.dataset.every);
      if (now - asked.get(part) >= every * 1000) ask(part);
    }
  }, 500);

  open();
}
