// SPDX-License-Identifier: Apache-2.0
// Aggregates: which are the bottleneck now, all of them by name, and one with what is below it and its rates, to be
// changed here. A list asks for so many at most, whatever there is.
import { call, parentPath } from "./api.js";
import { chart } from "./charts.js";
import { choice, h, linkTo, linkToParent, say, table, tile } from "./dom.js";
import * as format from "./format.js";
import { delays, way } from "./queues.js";
import { rates } from "./rates.js";

const LENGTH = 50;
const LISTS_EVERY_MS = 5000;
const RECORD_EVERY = 5;
const POINTS = 600;
/** Polls that tiles look back. */
const RECENT = 5;
/** A clock slower than this is one that somebody waits for. */
const SLOW = 0.99;

let [direction, by] = ["down", "clock"];

const heads = [{ text: "Aggregate" }, { text: "Clock", number: true }, { text: "Load", number: true }, { text: "Sent", number: true }, { text: "Rate", number: true }, { text: "Subscribers", number: true }, { text: "Aggregates", number: true }, { text: "Below" }];
const name = (id) => h("a", { href: linkToParent(id) }, id);
const speed = (of) => h("span", { class: of < SLOW ? "slow" : undefined }, format.percent(of));
const row = (item) => [name(item.id), speed(item.clock_speed), format.percent(item.load), format.bps(item.rate_bps), format.bps(item.configured_bps), format.whole(item.subscribers), format.whole(item.parents), item.parent ? name(item.parent) : ""];

/** Calls `load` now and every `every` ms, while the page is seen and until it ends. */
function again(load, every) {
  let [timer, ended, turns] = [undefined, false, 0];
  const turn = async () => {
    clearTimeout(timer);
    turns += 1;
    const [mine, begin] = [turns, performance.now()];
    if (!document.hidden) await load(() => ended || mine !== turns);
    if (!ended && mine === turns) timer = setTimeout(turn, Math.max(every - (performance.now() - begin), 200));
  };
  turn();
  return {
    now: turn,
    end() {
      ended = true;
      clearTimeout(timer);
    },
  };
}

const directions = (change) => choice("Direction", "direction", [["down", "Down"], ["up", "Up"]], direction, (to) => {
  direction = to;
  change();
});

/** Those that matter most now. */
function busiest(app) {
  const shown = table("Aggregates that matter most now", heads);
  const note = h("p", { class: "muted", role: "status", id: "parents-note" }, "asking …");
  const load = async (over) => {
    const [dir, order] = [direction, by];
    try {
      const { body } = await call(`v1/top/parents?by=${order}&dir=${dir}&n=${LENGTH}&window_s=10`);
      if (over() || dir !== direction || order !== by) return;
      shown.set(body.items.map(row), "There are no aggregates. PUT /v1/parents/{id} makes one; a load of network.json makes many.");
      const slow = body.items.filter((item) => item.clock_speed < SLOW).length;
      const first = body.items.length < LENGTH ? "" : `, the first ${LENGTH}`;
      note.className = "muted";
      note.textContent = `${dir}, over ${Math.round(body.window_s)} s${first}: ${slow ? `${slow} shown ${slow === 1 ? "is" : "are"} the bottleneck` : "none shown is a bottleneck"}`;
    } catch (error) {
      app.failed(error);
      note.className = "error";
      note.textContent = `Not known now: ${error.message}`;
    }
  };
  const round = again(load, LISTS_EVERY_MS);
  const order = choice("Which first", "by", [["clock", "Slowest clock"], ["load", "Fullest"], ["bytes", "Busiest"]], by, (to) => {
    by = to;
    round.now();
  });
  const element = h("section", { class: "card", id: "busiest" }, h("div", { class: "bar" }, h("h1", {}, "Aggregates"), h("div", { class: "bar" }, order, directions(() => round.now()))), note, shown.element);
  return { element, end: round.end };
}

/** All by name, page by page. */
function byName(app, after) {
  const note = h("p", { class: "muted", role: "status", id: "all-note" }, "asking …");
  const place = h("div", {});
  const load = async () => {
    try {
      const { body } = await call(`v1/parents?limit=${LENGTH}${after ? `&after=${encodeURIComponent(after)}` : ""}`);
      const shown = table("All aggregates by name", [{ text: "Aggregate" }, { text: "Down", number: true }, { text: "Up", number: true }, { text: "Below" }]);
      shown.set(body.items.map(({ id, down_bps, up_bps, parent: above }) => [name(id), format.bps(down_bps), format.bps(up_bps), above ? name(above) : ""]), "There are none.");
      note.textContent = `${format.whole(body.total)} in all${after ? `, those behind ${after}` : ""}`;
      place.replaceChildren(shown.element, body.next ? h("p", {}, h("a", { class: "more", href: `#/parents?after=${encodeURIComponent(body.next)}` }, "Next page")) : "");
    } catch (error) {
      app.failed(error);
      note.className = "error";
      note.textContent = `Not found out: ${error.message}`;
    }
  };
  load();
  return h("section", { class: "card", id: "all-parents" }, h("h2", {}, "All by name"), note, place);
}

export function parents(app, query) {
  const after = query.get("after");
  const first = after ? null : busiest(app);
  return {
    element: h("div", {}, first?.element, byName(app, after)),
    title: "Aggregates",
    update() {},
    end: () => first?.end(),
  };
}

/** What happened between two answers of the stats call. */
function between(first, last) {
  const seconds = Math.max((last.at - first.at) / 1000, 1e-3);
  const grown = (dir, what) => Math.max(last.stats[dir][what] - first.stats[dir][what], 0) / seconds;
  // not known where too many subscribers are below
  const queues = (dir) => (first.stats[dir].l4s && last.stats[dir].l4s ? way(first.stats[dir], last.stats[dir], seconds, 0) : null);
  const one = (dir) => ({ rate: 8 * grown(dir, "forwarded_bytes"), packets: grown(dir, "forwarded"), clock: last.stats[dir].clock_speed, waiting: last.stats[dir].waiting, queues: queues(dir) });
  return { down: one("down"), up: one("up") };
}

/** What is right below an aggregate, the busiest first. */
function children(app, id) {
  const [aggregates, people] = [table("Aggregates below", heads.slice(0, -1)), table("Subscribers below", ["Subscriber", "Sent", "L delay", "C delay", "Marked", "Dropped"].map((text, place) => ({ text, number: place > 0 })))];
  const note = h("p", { class: "muted", role: "status", id: "children-note" }, "asking …");
  const load = async (over) => {
    const dir = direction;
    const query = `dir=${dir}&n=${LENGTH}&window_s=10&parent=${encodeURIComponent(id)}`;
    try {
      const above = (await call(`v1/top/parents?by=bytes&${query}`)).body;
      const below = (await call(`v1/top?by=bytes&${query}`)).body;
      if (over() || dir !== direction) return;
      aggregates.set(above.items.map((item) => row(item).slice(0, -1)), "No aggregate is right below.");
      people.set(below.items.map((item) => [h("a", { href: linkTo(item.id) }, item.id), format.bps(item.rate_bps), format.micros(item.l4s_delay_us || null), format.micros(item.classic_delay_us || null), format.whole(item.marked), format.whole(item.dropped)]), "No subscriber is right below.");
      note.className = "muted";
      note.textContent = `${dir}, over ${Math.round(below.window_s)} s, the busiest first${Math.max(above.items.length, below.items.length) < LENGTH ? "" : `, ${LENGTH} at most`}`;
    } catch (error) {
      app.failed(error);
      note.className = "error";
      note.textContent = `Not known now: ${error.message}`;
    }
  };
  const round = again(load, LISTS_EVERY_MS);
  const elements = [h("section", { class: "card", id: "below-parents" }, h("h2", {}, "Aggregates right below"), aggregates.element), h("section", { class: "card", id: "below-subscribers" }, h("h2", {}, "Subscribers right below"), people.element)];
  return { note, elements, round };
}

export function parent(app, id) {
  const show = { rate: tile("Sent", "tile-rate"), load: tile("Load", "tile-load"), clock: tile("Clock speed", "tile-clock"), below: tile("Right below", "tile-below"), l4s: tile("L4S delay p99", "tile-l4s"), classic: tile("Classic delay p99", "tile-classic"), marks: tile("Marked CE", "tile-marks"), drops: tile("Dropped", "tile-drops") };
  const plots = {
    rate: chart("Rate", [{ label: "Sent", colour: "down", fill: true }, { label: "Configured", colour: "muted", dash: true }], { format: format.bps, note: "with the overhead that is shaped", id: "chart-rate" }),
    clock: chart("Clock speed", [{ label: "Clock", colour: "classic" }], { format: format.percent, most: 1.05, note: "what its subscribers get of their plans, if nothing above slows them more", id: "chart-clock" }),
    delay: delays("Queue delay", "of all subscribers below it"),
    waiting: chart("Waiting for it", [{ label: "Children", colour: "up", fill: true }], { format: format.whole, note: "subscribers and aggregates right below", id: "chart-waiting" }),
  };
  const about = h("dl", { class: "about" });
  const trouble = h("p", { class: "error", role: "alert" });
  const state = h("span", { class: "badge", id: "state" });
  const changing = rates(app, id, parentPath(id), "What waits below it keeps its place; nothing is lost by it.", take);
  const below = children(app, id);
  const [polls, points] = [[], []];
  let [record, turns] = [null, 0];

  function take(body, etag) {
    record = body;
    changing.set(body, etag);
    const key = JSON.stringify(body);
    if (about.dataset.key === key) return;
    about.dataset.key = key;
    const lines = [["Down", format.bps(body.down_bps)], ["Up", format.bps(body.up_bps)], ["Below", body.parent ? name(body.parent) : "none: it stands alone"]];
    about.replaceChildren(...lines.flatMap(([what, value]) => [h("dt", {}, what), h("dd", { id: `record-${what.toLowerCase()}` }, value)]));
  }

  async function poll(over) {
    try {
      if (turns % RECORD_EVERY === 0 || !record) {
        const { body, etag } = await call(parentPath(id));
        take(body, etag);
      }
      turns += 1;
      const { body } = await call(parentPath(id, "/stats"));
      if (over()) return;
      const next = { at: Date.now(), stats: body };
      const last = polls.at(-1);
      if (last) points.push({ at: next.at / 1000, record, ...between(last, next) });
      polls.push(next);
      points.splice(0, Math.max(points.length - POINTS, 0));
      polls.splice(0, Math.max(polls.length - RECENT - 1, 0));
      trouble.textContent = "";
      draw();
    } catch (error) {
      app.failed(error);
      if (over()) return;
      trouble.textContent = error.status === 404 ? `There is no aggregate named ${id}.` : `Not known now: ${error.message}`;
      if (!record) element.classList.add("unknown");
    }
  }

  /** The queues of all subscribers below. */
  function drawQueues(queues, subscribers) {
    if (!queues) {
      for (const which of ["l4s", "classic", "marks", "drops"]) show[which].set("–", `not summed for ${format.whole(subscribers)} subscribers`);
      return;
    }
    for (const which of ["l4s", "classic"]) show[which].set(format.micros(queues[which].p99), `p50 ${format.micros(queues[which].p50)} · ${format.perSecond(queues[which].packets, "packets")}`);
    show.marks.set(format.percent(queues.l4s.marked), `of L4S · ${format.percent(queues.classic.marked)} of Classic`);
    show.drops.set(format.perSecond(Object.values(queues.drops).reduce((sum, rate) => sum + rate, 0)), `of ${format.whole(subscribers)} subscribers below`);
  }

  function draw() {
    const now = polls.length > 1 ? between(polls[0], polls.at(-1))[direction] : null;
    const stats = polls.at(-1).stats[direction];
    const configured = record[`${direction}_bps`];
    const slow = stats.clock_speed < SLOW;
    if (now) {
      show.rate.set(format.bps(now.rate), `${direction} · ${format.perSecond(now.packets, "packets")}`);
      show.load.set(format.percent(now.rate / configured), `of ${format.bps(configured)} ${direction}`, slow ? "warn" : "");
      drawQueues(now.queues, stats.subscribers);
    }
    show.clock.set(format.percent(stats.clock_speed), slow ? "it is the bottleneck" : "not the bottleneck", slow ? "warn" : "");
    show.below.set(format.whole(stats.children), `${format.whole(stats.waiting)} wait for it ${direction}`);
    const full = ["down", "up"].filter((dir) => polls.at(-1).stats[dir].clock_speed < SLOW);
    say(state, full.length ? `bottleneck ${full.join(" and ")}` : "");
    state.hidden = !full.length;
    const times = points.map((point) => point.at);
    plots.rate.set([times, points.map((point) => point[direction].rate), points.map((point) => point.record[`${direction}_bps`])]);
    plots.clock.set([times, points.map((point) => point[direction].clock)]);
    plots.delay.set([times, ...[["l4s", "p99"], ["l4s", "p50"], ["classic", "p99"], ["classic", "p50"]].map(([queue, part]) => points.map((point) => point[direction].queues?.[queue][part] ?? null))]);
    plots.waiting.set([times, points.map((point) => point[direction].waiting)]);
  }

  const turn = () => {
    if (polls.length) draw();
    below.round.now();
  };
  const element = h("div", { class: "subscriber parent" },
    h("section", { class: "card head", "aria-labelledby": "who" }, h("div", { class: "bar" }, h("h1", { id: "who", class: "breaks" }, id), state), trouble, about, changing.elements),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "Now"), directions(turn)),
    h("div", { class: "tiles" }, Object.values(show).map((one) => one.element)),
    h("div", { class: "charts" }, Object.values(plots).map((plot) => plot.element)),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "Below"), below.note),
    h("div", { class: "cards" }, below.elements));
  const round = again(poll, 1000);
  return {
    element,
    title: id,
    update() {},
    end() {
      round.end();
      below.round.end();
      Object.values(plots).forEach((plot) => plot.end());
    },
  };
}
