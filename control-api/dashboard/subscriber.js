// SPDX-License-Identifier: Apache-2.0
// One subscriber: its two queues in each direction while the page is open, and its rates, to be changed here.
import { call, subscriberPath } from "./api.js";
import { chart, histogram } from "./charts.js";
import { choice, h, linkToParent, say, table, tile } from "./dom.js";
import * as format from "./format.js";
import { DROPS, delays, dropped, way } from "./queues.js";
import { rates } from "./rates.js";

const POINTS = 600;
const RECORD_EVERY = 5;
/** Polls that tiles look back. */
const RECENT = 5;
/** Polls that the histogram of the last minute looks back. */
const MINUTE = 60;
let direction = "down";

function charts() {
  return {
    delay: delays("Queue delay"),
    rate: chart("Rate", [{ label: "Sent", colour: "down", fill: true }, { label: "Configured", colour: "muted", dash: true }], { format: format.bps, note: "with the overhead that is shaped", id: "chart-rate" }),
    marks: chart("Packets marked CE", [{ label: "L4S", colour: "l4s" }, { label: "Classic", colour: "classic" }, { label: "p′", colour: "muted", dash: true }], { format: format.percent, id: "chart-marks" }),
    drops: chart("Drops", DROPS.map(([label, , colour]) => ({ label, colour })), { format: format.perSecond, id: "chart-drops", sparse: true }),
    queued: chart("Packets waiting", [{ label: "L4S", colour: "l4s" }, { label: "Classic", colour: "classic" }], { format: format.whole, id: "chart-queued" }),
  };
}

const tiles = () => ({
  rate: tile("Rate", "tile-rate"), l4s: tile("L4S delay p99", "tile-l4s"), classic: tile("Classic delay p99", "tile-classic"),
  marks: tile("Marked CE", "tile-marks"), drops: tile("Dropped", "tile-drops"), p: tile("Base probability p′", "tile-p"),
});

/** Since when the histogram counts. */
let since = "minute";

/** What the page keeps: answers of the stats call, and what happened between them. */
class Watch {
  polls = [];
  points = [];

  add(at, stats, overhead, record) {
    const last = this.polls.at(-1);
    if (last) {
      const seconds = Math.max((at - last.at) / 1000, 1e-3);
      const point = { at: at / 1000, record };
      for (const dir of ["down", "up"]) point[dir] = { ...way(last.stats[dir], stats[dir], seconds, overhead), p: stats[dir].p_prime, queued: [stats[dir].l4s.queued, stats[dir].classic.queued] };
      this.points.push(point);
    }
    this.polls.push({ at, stats });
    this.points.splice(0, Math.max(this.points.length - POINTS, 0));
    this.polls.splice(0, Math.max(this.polls.length - MINUTE - 1, 0));
  }

  /** Over the last `count` polls. */
  over(count, dir, overhead) {
    const [first, last] = [this.polls.at(-1 - count) ?? this.polls[0], this.polls.at(-1)];
    return way(first.stats[dir], last.stats[dir], Math.max((last.at - first.at) / 1000, 1e-3), overhead);
  }
}

export function subscriber(app, id) {
  const [show, plots, bars, watch] = [tiles(), charts(), histogram("bars"), new Watch()];
  const about = h("dl", { class: "about" });
  const trouble = h("p", { class: "error", role: "alert" });
  const state = h("span", { class: "badge", id: "state" });
  const numbers = table("Counters since start", ["Queue", ...["Arrived", "Sent", "Marked", "Came marked", "AQM drops", "Other drops", "Waiting", "Mean delay", "p99 delay", "Longest"].map((text) => ({ text, number: true }))]);
  const changing = rates(app, id, subscriberPath(id), "Queues keep their packets and the AQM its state; nothing is lost by it.", take);
  let [record, profile, ended, round, timer] = [null, null, false, 0, undefined];

  const overhead = () => profile?.overhead?.bytes ?? 0;

  function take(body, etag) {
    record = body;
    changing.set(body, etag);
    const lines = [["Down", format.bps(body.down_bps)], ["Up", format.bps(body.up_bps)], ["Profile", `${body.profile}${profile ? ` (${profile.aqm}${profile.l4s === false ? ", L4S off" : ""})` : ""}`], ["Matches", format.matching(body.match)]];
    const key = JSON.stringify([lines, body.parent]);
    if (about.dataset.key === key) return;
    about.dataset.key = key;
    if (body.parent) lines.push(["Parent", h("a", { href: linkToParent(body.parent) }, body.parent)]);
    about.replaceChildren(...lines.flatMap(([name, value]) => [h("dt", {}, name), h("dd", { id: `record-${name.toLowerCase()}` }, value)]));
  }

  async function learn() {
    const { body, etag } = await call(subscriberPath(id));
    profile ??= (await call("v1/profiles")).body.items.find((item) => item.name === body.profile) ?? null;
    if (profile?.name !== body.profile) profile = null;
    take(body, etag);
  }

  async function poll() {
    clearTimeout(timer);
    const begin = performance.now();
    if (!document.hidden) {
      try {
        if (round % RECORD_EVERY === 0 || !record) await learn();
        round += 1;
        const { body } = await call(subscriberPath(id, "/stats"));
        if (ended) return;
        watch.add(Date.now(), body, overhead(), record);
        trouble.textContent = "";
        draw();
      } catch (error) {
        app.failed(error);
        if (ended) return;
        trouble.textContent = error.status === 404 ? `There is no subscriber named ${id}.` : `Not known now: ${error.message}`;
        if (!record) element.classList.add("unknown");
      }
    }
    if (!ended) timer = setTimeout(poll, Math.max(1000 - (performance.now() - begin), 200));
  }

  function drawTiles(now, stats) {
    const configured = record[`${direction}_bps`];
    show.rate.set(format.bps(now.shaped), `${format.percent(now.shaped / configured)} of ${format.bps(configured)} ${direction}`);
    for (const queue of ["l4s", "classic"]) show[queue].set(format.micros(now[queue].p99), `p50 ${format.micros(now[queue].p50)} · ${format.perSecond(now[queue].packets, "packets")}`);
    show.marks.set(format.percent(now.l4s.marked), `of L4S · ${format.percent(now.classic.marked)} of Classic`);
    const all = Object.values(now.drops).reduce((sum, rate) => sum + rate, 0);
    const reasons = DROPS.filter(([, name]) => now.drops[name] > 0).map(([label, name]) => `${label} ${format.amount(now.drops[name])}`);
    show.drops.set(format.perSecond(all), reasons.join(", ") || `none in ${RECENT} s`, now.drops.dropped_tail + now.drops.dropped_pool + now.drops.dropped_other > 0 ? "warn" : "");
    const p = stats[direction].p_prime;
    const k = profile?.coupling;
    show.p.set(format.percent(p), k ? `L4S at least ${format.percent(Math.min(k * p, 1))} · Classic ${format.percent(p * p)}` : `Classic ${format.percent(p * p)}`);
    const overload = ["down", "up"].filter((dir) => stats[dir].overload);
    say(state, overload.length ? `in overload ${overload.join(" and ")}` : "");
    state.hidden = !overload.length;
  }

  function drawCharts() {
    const { points } = watch;
    const times = points.map((point) => point.at);
    const set = (which, ...of) => plots[which].set([times, ...of.map((one) => points.map((point) => one(point[direction], point)))]);
    set("delay", (now) => now.l4s.p99, (now) => now.l4s.p50, (now) => now.classic.p99, (now) => now.classic.p50);
    set("rate", (now) => now.shaped, (_, point) => point.record[`${direction}_bps`]);
    set("marks", (now) => now.l4s.marked, (now) => now.classic.marked, (now) => now.p);
    set("drops", ...DROPS.map(([, name]) => (now) => now.drops[name]));
    set("queued", (now) => now.queued[0], (now) => now.queued[1]);
  }

  function draw() {
    const { stats } = watch.polls.at(-1);
    drawTiles(watch.over(RECENT, direction, overhead()), stats);
    drawCharts();
    const { l4s, classic } = stats[direction];
    if (since === "start") bars.set(l4s.delay_us.le, l4s.delay_us.count, classic.delay_us.count);
    else {
      const minute = watch.over(MINUTE, direction, overhead());
      bars.set(l4s.delay_us.le, minute.l4s.counts, minute.classic.counts);
    }
    const rows = ["down", "up"].flatMap((dir) => [["L4S", stats[dir].l4s], ["Classic", stats[dir].classic]].map(([name, queue]) => [`${name} ${dir}`,
      ...[queue.arrived, queue.forwarded, queue.marked, queue.arrived_ce, queue.dropped_ect + queue.dropped_not_ect, dropped(queue) - queue.dropped_ect - queue.dropped_not_ect, queue.queued].map(format.whole),
      ...[queue.delay_us.mean, queue.delay_us.p99, queue.delay_us.max].map((delay) => (queue.forwarded ? format.micros(delay) : "–"))]));
    numbers.set(rows, "");
  }

  const turn = (to) => {
    direction = to;
    if (watch.polls.length) draw();
  };
  const bin = (to) => {
    since = to;
    if (watch.polls.length) draw();
  };
  const element = h("div", { class: "subscriber" },
    h("section", { class: "card head", "aria-labelledby": "who" }, h("div", { class: "bar" }, h("h1", { id: "who", class: "breaks" }, id), state), trouble, about, changing.elements),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "Now"), choice("Direction", "direction", [["down", "Down"], ["up", "Up"]], direction, turn)),
    h("div", { class: "tiles" }, Object.values(show).map((one) => one.element)),
    h("div", { class: "charts" }, plots.delay.element, plots.rate.element, plots.marks.element, plots.drops.element, plots.queued.element,
      h("section", { class: "card chart", id: "histogram", "aria-label": "Delay by share of packets" },
        h("div", { class: "bar" }, h("h2", {}, "Delay by share of packets"), choice("Since when", "since", [["minute", "Last minute"], ["start", "Since start"]], since, bin)),
        h("ul", { class: "legend" }, h("li", { "data-colour": "l4s" }, "L4S, upwards"), h("li", { "data-colour": "classic" }, "Classic, downwards")), bars.element)),
    h("section", { class: "card", id: "counters" }, h("h2", {}, "Counters since start"), numbers.element));
  poll();
  return {
    element,
    title: id,
    update() {},
    end() {
      ended = true;
      clearTimeout(timer);
      Object.values(plots).forEach((plot) => plot.end());
    },
  };
}
