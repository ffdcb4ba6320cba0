// SPDX-License-Identifier: Apache-2.0
// The page: which view is shown, one call a second, the token, and whether what is shown is still true.
import { Problem, call, follow, token } from "./api.js";
import { h, say } from "./dom.js";
import { clock, lasting } from "./format.js";
import { overview } from "./overview.js";
import { parent, parents } from "./parents.js";
import { Store } from "./store.js";
import { subscriber } from "./subscriber.js";
import { calls, subscribers } from "./subscribers.js";

const POLL_MS = 1000;
/** Figures older than this are called stale. */
const STALE_MS = 3500;
/** While events do not come by themselves they are asked for so often. */
const EVENTS_MS = 10_000;

const by = (id) => document.getElementById(id);
const app = { store: new Store(), eventsFail: "not yet", failed };
let [view, lastOk, failure, asked, timer] = [null, 0, null, 0, undefined];
let stream = null;

function route() {
  const [path, query] = (location.hash.startsWith("#/") ? location.hash.slice(2) : "").split("?");
  const [page, ...rest] = path.split("/");
  view?.end();
  const params = new URLSearchParams(query);
  if (page === "subscriber" && rest.length) view = subscriber(app, decodeURIComponent(rest.join("/")));
  else if (page === "parent" && rest.length) view = parent(app, decodeURIComponent(rest.join("/")));
  else if (page === "parents") view = parents(app, params);
  else if (page === "subscribers") view = subscribers(app, params);
  else if (page === "calls") view = calls(app);
  else view = overview(app);
  document.title = `${view.title} – Sluice`;
  by("main").replaceChildren(view.element);
  const here = { subscriber: "subscribers", parent: "parents" }[page] ?? (page || "overview");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "subscribers") by("q").value = params.get("q") ?? "";
  view.update();
}

/** Any call of a view that failed: only a missing token concerns the whole page. */
function failed(error) {
  if (error instanceof Problem && error.status === 401) askToken();
}

function askToken() {
  const dialog = by("token");
  if (dialog.open) return;
  say(by("token-error"), token.get() ? "The shaper refuses this token." : "");
  by("token-text").value = "";
  dialog.showModal();
}

async function poll() {
  clearTimeout(timer);
  const begin = performance.now();
  if (!document.hidden && !by("token").open) {
    if (app.eventsFail && Date.now() - asked > EVENTS_MS) {
      app.store.restart();
      asked = Date.now();
    }
    try {
      const { body } = await call(app.store.path);
      app.store.take(body);
      lastOk = Date.now();
      failure = null;
      if (!stream) listen();
      view.update();
    } catch (error) {
      failure = error;
      failed(error);
    }
  }
  judge();
  timer = setTimeout(poll, Math.max(POLL_MS - (performance.now() - begin), 200));
}

/** Whether what is shown is true now, in a word at the top and, if not, in a notice. */
function judge() {
  const { summary } = app.store;
  const now = Date.now();
  const newest = (summary && (app.store.times.at(-1) ?? 0) * 1000) || 0;
  const late = summary ? summary.now_ms - newest : 0;
  const shown = lastOk ? ` What is shown is from ${clock(lastOk)}.` : "";
  let [state, word, notice] = ["live", "live", ""];
  if (by("token").open || failure?.status === 401) {
    [state, word, notice] = ["locked", "needs a token", `The shaper does not answer without its token.${shown}`];
  } else if (failure && !(failure instanceof Problem)) {
    const since = lastOk ? ` for ${lasting(now - lastOk)}` : "";
    [state, word, notice] = ["gone", "no answer", `The shaper does not answer${since} (${failure.message}).${shown} Forwarding does not depend on this page; asked again every second.`];
  } else if (failure) {
    [state, word, notice] = ["stale", `error ${failure.status}`, `The shaper answers with an error: ${failure.message}.${shown}`];
  } else if (lastOk && now - lastOk > STALE_MS) {
    [state, word, notice] = ["stale", "stale", `No news for ${lasting(now - lastOk)}.${shown}`];
  } else if (newest && late > STALE_MS) {
    [state, word, notice] = ["stale", "stale", `The shaper answers, but its figures are ${lasting(late)} old.`];
  } else if (!summary) {
    [state, word] = ["starting", "asking …"];
  }
  document.body.dataset.state = state;
  say(by("live"), word);
  say(by("notice"), notice);
  by("notice").hidden = !notice;
  by("forget").hidden = !token.get();
  if (summary) say(by("about"), `Sluice ${summary.version} · ${summary.dpdk || "no DPDK"} · HTTP up ${lasting(summary.now_ms - summary.started_ms)} · ${location.host}`);
}

/** Follows the events until the page goes. */
function listen() {
  stream = new AbortController();
  const state = (why) => {
    // what happened before it opened comes with the next summary
    if (!why) app.store.restart();
    app.eventsFail = why ?? "";
  };
  let due;
  follow(stream.signal, (event) => {
    app.store.note(event);
    // many may come at once
    due ??= setTimeout(() => {
      due = undefined;
      view.update();
    }, 200);
  }, state);
}

by("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("q").value.trim();
  location.hash = text ? `#/subscribers?q=${encodeURIComponent(text)}` : "#/subscribers";
});
by("skip").addEventListener("click", (event) => {
  event.preventDefault();
  by("main").focus();
});
by("token-form").addEventListener("submit", () => {
  token.set(by("token-text").value.trim());
  stream?.abort();
  stream = null;
});
by("token").addEventListener("close", () => {
  if (!token.get()) {
    by("notice").replaceChildren("The shaper does not answer without its token. ", h("button", { type: "button", onclick: askToken }, "Give it"));
    return;
  }
  failure = null;
  route();
  poll();
});
by("forget").addEventListener("click", () => {
  token.forget();
  location.reload();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    by("q").select();
  }
});
document.addEventListener("visibilitychange", () => document.hidden || poll());
addEventListener("hashchange", () => {
  route();
  by("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
route();
poll();
