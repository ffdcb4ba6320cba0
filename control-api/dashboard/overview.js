// SPDX-License-Identifier: Apache-2.0
// The box at a glance: is it healthy, is it dropping, who hurts.
import { call } from "./api.js";
import { chart } from "./charts.js";
import { choice, h, linkTo, say, table, tile } from "./dom.js";
import * as format from "./format.js";

const TOP_EVERY_MS = 5000;
const TOP_LENGTH = 8;
const REASONS = ["aqm", "overload", "tail", "pool", "ring", "removed", "link"];
/** Where a figure begins to be worth a look: busy lcores, buffers, lateness, L delay, share of unknown traffic. */
const BUSY = 0.9;
const BUFFERS = 0.9;
const LAG_US = 1000;
const L4S_US = 5000;
const UNKNOWN = 0.1;

let direction = "down";

/** Everything that somebody should know, worst first: { level, text, link }. */
export function findings(store) {
  const { summary } = store;
  const list = [];
  const add = (level, text, link) => list.push({ level, text, link });
  summary.reasons.forEach((reason) => add("bad", reason));
  summary.lcores.filter((lcore) => lcore.stalled && !summary.reasons.some((reason) => reason.includes(`lcore ${lcore.lcore} `)))
    .forEach((lcore) => add("bad", `lcore ${lcore.lcore} (${lcore.role}) has stalled`));
  const now = summary.recent;
  if (!now) return list;
  const lost = (reason) => ["down", "up"].flatMap((dir) => [now[dir].l4s, now[dir].classic])
    .reduce((sum, queue) => sum + queue.dropped_per_s[reason], 0);
  const tell = (reason, text) => lost(reason) > 0 && add(["tail", "overload"].includes(reason) ? "warn" : "bad", `${format.perSecond(lost(reason), "packets")} dropped: ${text}`);
  tell("pool", "packet buffers ran short");
  tell("ring", "an lcore cannot keep up (full ring)");
  tell("link", "a link was down");
  tell("tail", "queues at their limit");
  tell("overload", "senders that do not slow down (overload)");
  summary.ports.forEach((port, place) => {
    if (now.ports.dropped_per_s[place] > 0) add("bad", `port ${port.name} loses ${format.perSecond(now.ports.dropped_per_s[place], "frames")} outside the queues`);
    if (now.ports.clock_speed[place] < 0.999) add("warn", `port ${port.name} is full: its subscribers get ${format.percent(now.ports.clock_speed[place])} of their rates`);
  });
  const all = now.buffers.free + now.buffers.used;
  if (all && now.buffers.used / all > BUFFERS) add("bad", `${format.percent(now.buffers.used / all)} of the packet buffers are in use`);
  now.lcore_busy.forEach((busy, place) => {
    const { lcore, role } = summary.lcores[place];
    if (busy > BUSY) add("warn", `lcore ${lcore} (${role}) is ${format.percent(busy)} busy`);
  });
  if (now.shaper_lag.p99_us > LAG_US) add("warn", `departures are late: shaper lag p99 ${format.micros(now.shaper_lag.p99_us)}`);
  for (const dir of ["down", "up"]) {
    if (now[dir].l4s.delay.p99_us > L4S_US) add("warn", `L4S delay ${dir} is high: p99 ${format.micros(now[dir].l4s.delay.p99_us)}`);
    const share = now[dir].unclassified_per_s / (now[dir].unclassified_per_s + now[dir].packets_per_s);
    if (share > UNKNOWN) add("warn", `${format.percent(share)} of the packets ${dir} belong to no subscriber`);
  }
  for (const dir of ["down", "up"]) {
    const slowed = now.parents[`slowed_${dir}`];
    if (slowed) add("warn", `${slowed === 1 ? "one aggregate is" : `${format.whole(slowed)} aggregates are`} the bottleneck ${dir}: their subscribers share`, "#/parents");
  }
  const { overloads } = store;
  if (overloads.length) add("warn", `in overload: ${overloads.slice(0, 3).map(({ id, dir }) => `${id} (${dir})`).join(", ")}${overloads.length > 3 ? ` and ${overloads.length - 3} more` : ""}`, linkTo(overloads[0].id));
  return list.sort((a, b) => (a.level === b.level ? 0 : a.level === "bad" ? -1 : 1));
}

export function eventText(event) {
  const who = () => h("a", { href: linkTo(event.id) }, event.id);
  switch (event.event) {
    case "overload_start": return ["overload of ", who(), ` ${event.dir}`];
    case "overload_end": return ["overload of ", who(), ` ${event.dir} ended after ${format.lasting(event.lasted_ms)}`];
    case "link": return [`port ${event.port} is ${event.up ? "up" : "down"}${event.up && event.speed_bps ? ` at ${format.bps(event.speed_bps)}` : ""}`];
    case "config": return [`records: ${["created", "updated", "deleted"].filter((name) => event[name]).map((name) => `${format.whole(event[name])} ${name}`).join(", ")}`];
    default: return [event.event];
  }
}

const loud = (event) => event.event === "overload_start" || (event.event === "link" && !event.up);

function eventList() {
  const list = h("ol", { class: "events" });
  const note = h("p", { class: "muted" });
  let shown = "";
  return {
    element: h("section", { class: "card", id: "events", "aria-labelledby": "events-title" }, h("h2", { id: "events-title" }, "Events"), note,
      h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Events, the last first" }, list)),
    set(events, why) {
      note.textContent = why ? `not live (${why}); asked for every 10 s` : events.length ? "" : "None since the shaper began.";
      const key = JSON.stringify(events.slice(-60));
      if (key === shown) return;
      shown = key;
      list.replaceChildren(...events.slice(-60).reverse().map((event) =>
        h("li", { class: loud(event) ? "loud" : undefined }, h("time", { datetime: new Date(event.at_ms).toISOString() }, format.clock(event.at_ms)), " ", eventText(event))));
    },
  };
}

/** Delay, marks, drops of one direction. */
const perDirection = (dir) => ({
  delay: ["l4s.delay.p99_us", "l4s.delay.p50_us", "classic.delay.p99_us", "classic.delay.p50_us"].map((path) => `${dir}.${path}`),
  marks: [`${dir}.l4s.marked_ratio`, `${dir}.classic.marked_ratio`],
});

const sum = (a, b) => a.map((value, place) => value + (b[place] ?? 0));

function charts() {
  const both = [["L4S p99", "l4s"], ["L4S p50", "l4s", true], ["Classic p99", "classic"], ["Classic p50", "classic", true]];
  return {
    rate: chart("Throughput", [{ label: "Down", colour: "down", fill: true }, { label: "Up", colour: "up", fill: true }], { format: format.bps, id: "chart-rate" }),
    delay: chart("Queue delay", both.map(([label, colour, faint]) => ({ label, colour, faint })), { format: format.micros, log: true, id: "chart-delay" }),
    marks: chart("Packets marked CE", [{ label: "L4S", colour: "l4s" }, { label: "Classic", colour: "classic" }], { format: format.percent, id: "chart-marks" }),
    drops: chart("Drops by reason", REASONS.map((label) => ({ label, colour: `drop-${label}` })), { format: format.perSecond, id: "chart-drops", sparse: true }),
    lag: chart("Shaper lag", [{ label: "p99", colour: "neutral" }, { label: "p50", colour: "neutral", faint: true }], { format: format.micros, log: true, note: "how late departures were", id: "chart-lag" }),
    active: chart("Subscribers with packets queued", [{ label: "Active", colour: "up", fill: true }], { format: format.whole, id: "chart-active" }),
    buffers: chart("Packet buffers in use", [{ label: "Used", colour: "neutral", fill: true }], { format: format.whole, id: "chart-buffers" }),
  };
}

function tiles() {
  return {
    down: tile("Down", "tile-down"), up: tile("Up", "tile-up"),
    l4s: tile("L4S delay p99", "tile-l4s"), classic: tile("Classic delay p99", "tile-classic"),
    marks: tile("L4S marked CE", "tile-marks"), drops: tile("Dropped", "tile-drops"),
    subscribers: tile("Subscribers", "tile-subscribers"), lcore: tile("Busiest lcore", "tile-lcore"),
    lag: tile("Shaper lag p99", "tile-lag"), buffers: tile("Buffers used", "tile-buffers"),
  };
}

function fillTiles(show, { summary }) {
  const now = summary.recent;
  if (!now) return;
  const other = direction === "down" ? "up" : "down";
  for (const dir of ["down", "up"]) show[dir].set(format.bps(now[dir].rate_bps), format.perSecond(now[dir].packets_per_s, "packets"));
  for (const queue of ["l4s", "classic"]) {
    const [here, there] = [now[direction][queue].delay, now[other][queue].delay];
    show[queue].set(format.micros(here.p99_us), `${direction}, p50 ${format.micros(here.p50_us)} · ${other} p99 ${format.micros(there.p99_us)}`, queue === "l4s" && here.p99_us > L4S_US ? "warn" : "");
  }
  const queues = ["down", "up"].flatMap((dir) => [now[dir].l4s, now[dir].classic]);
  const total = (of) => queues.reduce((all, queue) => all + of(queue), 0);
  show.marks.set(format.percent(now[direction].l4s.marked_ratio), `${direction}, Classic ${format.percent(now[direction].classic.marked_ratio)} · ${format.perSecond(total((queue) => queue.marked_per_s))} in all`);
  const reasons = REASONS.map((reason) => [reason, total((queue) => queue.dropped_per_s[reason])]).filter(([, rate]) => rate > 0);
  const dropped = reasons.reduce((all, [, rate]) => all + rate, 0);
  const packets = total((queue) => queue.packets_per_s);
  show.drops.set(format.perSecond(dropped), reasons.length ? `${format.percent(dropped / (dropped + packets))}: ${reasons.map(([reason, rate]) => `${reason} ${format.amount(rate)}`).join(", ")}` : "none in 10 s", reasons.some(([reason]) => reason !== "aqm") ? "warn" : "");
  show.subscribers.set(format.whole(now.subscribers.configured), `${format.whole(now.subscribers.active)} active · room for ${format.whole(summary.capacity)}`);
  const busiest = now.lcore_busy.reduce((best, busy, place) => (busy > now.lcore_busy[best] ? place : best), 0);
  const lcore = summary.lcores[busiest];
  if (lcore) show.lcore.set(format.percent(now.lcore_busy[busiest]), `lcore ${lcore.lcore} (${lcore.role})`, now.lcore_busy[busiest] > BUSY ? "warn" : "");
  show.lag.set(format.micros(now.shaper_lag.p99_us), `p50 ${format.micros(now.shaper_lag.p50_us)}`, now.shaper_lag.p99_us > LAG_US ? "warn" : "");
  const all = now.buffers.used + now.buffers.free;
  show.buffers.set(format.percent(all ? now.buffers.used / all : 0), `${format.whole(now.buffers.used)} of ${format.whole(all)}`, all && now.buffers.used / all > BUFFERS ? "bad" : "");
}

function fillCharts(show, store) {
  const { times } = store;
  const draw = (which, ...columns) => show[which].set([times, ...columns]);
  const paths = perDirection(direction);
  draw("rate", store.column("down.rate_bps"), store.column("up.rate_bps"));
  draw("delay", ...paths.delay.map((path) => store.column(path)));
  draw("marks", ...paths.marks.map((path) => store.column(path)));
  draw("drops", ...REASONS.map((reason) => sum(store.column(`${direction}.l4s.dropped_per_s.${reason}`), store.column(`${direction}.classic.dropped_per_s.${reason}`))));
  draw("lag", store.column("shaper_lag.p99_us"), store.column("shaper_lag.p50_us"));
  draw("active", store.column("subscribers.active"));
  draw("buffers", store.column("buffers.used"));
}

/** Made once the lcores are known. */
function loadChart(lcores) {
  const palette = ["l4s", "classic", "down", "up", "neutral"];
  return chart("Lcore load", lcores.map(({ lcore, role }, place) => ({ label: `${lcore} ${role}`, colour: palette[place % palette.length] })), { format: format.percent, most: 1, id: "chart-load" });
}

function topTables() {
  const heads = ["Subscriber", "Rate", "L delay", "C delay", "Marked", "Dropped"].map((text, place) => ({ text, number: place > 0 }));
  const one = (by, title, empty) => {
    const shown = table(title, heads);
    const element = h("section", { class: "card", id: `top-${by}` }, h("h2", {}, title), shown.element);
    return { by, element, fill: (items) => shown.set(items.map((item) => [h("a", { href: linkTo(item.id) }, item.id), format.bps(item.rate_bps), format.micros(item.l4s_delay_us || null), format.micros(item.classic_delay_us || null), format.whole(item.marked), format.whole(item.dropped)]), empty) };
  };
  return [one("bytes", "Busiest", "Nobody sends or receives."), one("delay", "Longest delay", "Nobody waits."), one("drops", "Most drops", "Nothing was dropped.")];
}

function boxTables() {
  const ports = table("Ports", ["Port", "Link", { text: "In", number: true }, { text: "Out", number: true }, { text: "Shaped to", number: true }, { text: "Lost", number: true }, { text: "Clock", number: true }]);
  const lcores = table("Lcores", ["Lcore", "Role", { text: "Busy", number: true }, { text: "Stalls", number: true }, { text: "Longest gap", number: true }, { text: "Gaps over 2 ms", number: true }]);
  return {
    elements: [h("section", { class: "card", id: "ports" }, h("h2", {}, "Ports"), ports.element), h("section", { class: "card", id: "lcores" }, h("h2", {}, "Lcores"), lcores.element)],
    fill({ summary }) {
      const now = summary.recent;
      ports.set(summary.ports.map((port, place) => [`${port.name} (${port.role})`, h("span", { class: port.link ? "good" : "bad" }, port.link ? "up" : "down"),
        format.bps(now?.ports.rx_bps[place]), format.bps(now?.ports.tx_bps[place]), port.rate_bps ? format.bps(port.rate_bps) : "no limit",
        format.perSecond(now?.ports.dropped_per_s[place]), format.percent(port.clock_speed)]), "No ports.");
      lcores.set(summary.lcores.map((lcore) => [`${lcore.lcore} on CPU ${lcore.cpu}`, lcore.role, lcore.stalled ? h("span", { class: "bad" }, "stalled") : format.percent(lcore.busy_ratio),
        format.whole(lcore.stalls), format.micros(lcore.longest_gap_us), format.whole(lcore.long_gaps)]), "No lcores.");
    },
  };
}

function verdict() {
  const title = h("h1", { role: "status" }, "…");
  const list = h("ul", {});
  let shown = "";
  const element = h("section", { class: "verdict", id: "verdict", "aria-label": "Health" }, title, list);
  return {
    element,
    set(found, { summary }) {
      const level = found[0]?.level ?? "good";
      const healthy = `Healthy: ${format.whole(summary.recent?.subscribers.configured ?? 0)} subscribers, nothing lost that the AQM did not choose to drop`;
      const things = found.length === 1 ? "one thing" : `${found.length} things`;
      const text = { good: healthy, warn: `Forwarding, with ${things} to look at`, bad: `Trouble: ${things} to look at` }[level];
      const key = JSON.stringify([text, found]);
      if (key === shown) return;
      shown = key;
      element.dataset.level = level;
      say(title, text);
      list.replaceChildren(...found.map((item) => h("li", { class: item.level }, item.link ? h("a", { href: item.link }, item.text) : item.text)));
    },
  };
}

export function overview(app) {
  const [health, show, plots, tops, box, events] = [verdict(), tiles(), charts(), topTables(), boxTables(), eventList()];
  const load = h("div", { class: "slot" });
  let loads = null;
  let ended = false;
  let timer;
  const topNote = h("p", { class: "muted", id: "top-note" });

  async function refreshTops() {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        const dir = direction;
        for (const top of tops) {
          const { body } = await call(`v1/top?by=${top.by}&dir=${dir}&n=${TOP_LENGTH}&window_s=10`);
          if (ended || dir !== direction) break;
          top.fill(body.items);
          topNote.textContent = `${dir}, over ${Math.round(body.window_s)} s`;
        }
      } catch (error) {
        topNote.textContent = `not known now: ${error.message}`;
      }
    }
    if (!ended) timer = setTimeout(refreshTops, TOP_EVERY_MS);
  }

  function turn(to) {
    direction = to;
    update();
    refreshTops();
  }

  function update() {
    const { store } = app;
    if (!store.summary) return;
    if (!loads && store.summary.lcores.length) {
      loads = loadChart(store.summary.lcores);
      load.replaceWith(loads.element);
    }
    health.set(findings(store), store);
    fillTiles(show, store);
    fillCharts(plots, store);
    loads?.set([store.times, ...store.summary.lcores.map((_, place) => store.column("lcore_busy", place))]);
    box.fill(store);
    events.set(store.events, app.eventsFail);
  }

  const element = h("div", { class: "overview" },
    health.element,
    h("div", { class: "tiles" }, Object.values(show).map((one) => one.element)),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "Last ten minutes"), choice("Direction of delay, marks, drops and lists", "direction", [["down", "Down"], ["up", "Up"]], direction, turn)),
    h("div", { class: "charts" }, plots.delay.element, plots.rate.element, plots.marks.element, plots.drops.element),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "Who"), topNote),
    h("div", { class: "cards" }, tops.map((top) => top.element), events.element),
    h("div", { class: "bar" }, h("h2", { class: "big" }, "The box")),
    h("div", { class: "charts" }, load, plots.lag.element, plots.buffers.element, plots.active.element),
    h("div", { class: "cards" }, box.elements));
  refreshTops();
  return {
    element,
    title: "Overview",
    update,
    end() {
      ended = true;
      clearTimeout(timer);
      [...Object.values(plots), loads].forEach((plot) => plot?.end());
    },
  };
}
