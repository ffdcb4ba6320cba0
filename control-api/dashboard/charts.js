// SPDX-License-Identifier: Apache-2.0
// Figures over time (uPlot) and delay histograms (SVG). Colours come from the style sheet, so both follow dark mode.
/* global uPlot */
import { h, say } from "./dom.js";
import { clock, micros, onAxis, percent } from "./format.js";

const HEIGHT = 190;
const LEAST_S = 60;
const SVG = "http://www.w3.org/2000/svg";
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** At least a minute, so that the first points do not fill the width. */
const xRange = (_, from, to) => [Math.min(from, to - LEAST_S), to];
const upFrom0 = (_, __, to) => [0, to > 0 ? to * 1.1 : 1];

/** Whole decades around what there is. */
function decades(_, from, to) {
  if (!(to > 0)) return [100, 100_000];
  const low = Math.floor(Math.log10(Math.max(from, 1)));
  return [10 ** low, 10 ** Math.max(Math.ceil(Math.log10(to) + 0.01), low + 1)];
}

/**
 * A chart of `lines` ({ label, colour, faint, dash, fill }) with a legend that tells the last values or those under
 * the pointer. `log`: an axis by decades. `most`: the top of the axis. `sparse`: the legend leaves out what is 0.
 */
export function chart(title, lines, { format, log = false, most, note, id, sparse = false }) {
  const values = lines.map(() => h("b", {}, "–"));
  const items = lines.map((line, place) => h("li", { "data-colour": line.colour, class: line.faint ? "faint" : line.dash ? "dash" : undefined }, `${line.label} `, values[place]));
  const plot = h("div", { class: "plot", role: "img", "aria-label": title });
  const element = h("section", { class: "card chart", id, "aria-label": title },
    h("h2", {}, title, note && h("small", {}, ` ${note}`)), h("ul", { class: "legend" }, items), plot);
  let data = [[], ...lines.map(() => [])];
  let drawn = null;

  function told(at) {
    const texts = lines.map((_, place) => format(data[place + 1][at]));
    values.forEach((value, place) => say(value, texts[place]));
    return texts;
  }

  function options() {
    const [text, grid] = [colour("muted"), colour("grid")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "12px system-ui, sans-serif" };
    const series = lines.map((line) => ({
      label: line.label, stroke: colour(line.colour) + (line.faint ? "99" : ""), width: line.faint ? 1 : 1.75, dash: line.dash ? [5, 4] : undefined,
      fill: line.fill ? `${colour(line.colour)}22` : undefined, points: { show: false },
    }));
    const y = log ? { distr: 3, log: 10, range: decades } : { range: most ? [0, most] : upFrom0 };
    return {
      width: Math.max(plot.clientWidth, 120), height: HEIGHT, legend: { show: false },
      scales: { x: { time: true, range: xRange }, y },
      axes: [
        { ...axis, size: 30, space: 75, values: (_, splits, __, ___, step) => splits.map((at) => clock(at * 1000).slice(0, step < 60 ? 8 : 5)) },
        { ...axis, size: 74, space: 34, values: (_, splits) => splits.map((split) => (split === null ? "" : onAxis(format(split)))) },
      ],
      padding: [8, 8, 0, 0],
      series: [{}, ...series],
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "sluice" }, points: { size: 6 } },
      hooks: { setCursor: [(self) => told(self.cursor.idx ?? data[0].length - 1)] },
    };
  }

  function draw() {
    drawn?.destroy();
    drawn = new uPlot(options(), data, plot);
  }

  const size = new ResizeObserver(() => drawn?.setSize({ width: Math.max(plot.clientWidth, 120), height: HEIGHT }));
  size.observe(plot);
  dark.addEventListener("change", draw);
  return {
    element,
    set(next) {
      const above0 = (value) => (value === null || value === undefined ? null : Math.max(value, 1));
      data = log ? [next[0], ...next.slice(1).map((column) => column.map(above0))] : next;
      if (!plot.isConnected) return;
      if (sparse) items.forEach((item, place) => (item.hidden = place > 0 && !data[place + 1].some((value) => value > 0)));
      if (drawn) drawn.setData(data);
      else draw();
      const texts = drawn.cursor.idx === null || drawn.cursor.idx === undefined ? told(data[0].length - 1) : [];
      if (texts.length) plot.setAttribute("aria-label", `${title}: ${lines.map((line, place) => `${line.label} ${texts[place]}`).join(", ")}`);
    },
    end() {
      size.disconnect();
      dark.removeEventListener("change", draw);
      drawn?.destroy();
    },
  };
}

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const share = (counts) => {
  const bins = counts.map((count, bin) => Math.max(count - (counts[bin - 1] ?? 0), 0));
  const all = bins.reduce((sum, bin) => sum + bin, 0);
  return { all, parts: bins.map((bin) => (all ? bin / all : 0)) };
};

/** Both queues' delays: shares of their packets by bin, L upwards and C downwards. `le` in µs, counts cumulative. */
export function histogram(id) {
  const plot = h("div", { class: "plot", role: "img", "aria-label": "no packets yet" });
  const element = h("div", { id }, plot);
  return {
    element,
    set(le, l4s, classic) {
      const [L, C] = [share(l4s), share(classic)];
      const used = [...L.parts.keys()].filter((bin) => L.parts[bin] > 0 || C.parts[bin] > 0);
      if (!used.length) {
        plot.replaceChildren(h("p", { class: "muted" }, "No packets in this time."));
        plot.setAttribute("aria-label", "no packets");
        return;
      }
      const [first, last] = [Math.max(used[0] - 1, 0), Math.min(used.at(-1) + 1, L.parts.length - 1)];
      const top = Math.max(...L.parts, ...C.parts);
      const [width, height, left, middle] = [640, 230, 58, 108];
      const step = (width - left - 26) / (last - first + 1);
      const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
      const bars = (parts, name, up) => {
        for (let bin = first; bin <= last; bin += 1) {
          const size = (parts[bin] / top) * 92;
          if (size === 0) continue;
          const bar = shape("rect", { class: name, x: left + (bin - first) * step + 0.5, width: Math.max(step - 1, 1), y: up ? middle - size : middle, height: Math.max(size, 0.75) });
          const tip = shape("title", {});
          tip.textContent = `up to ${le[bin] === null ? "∞" : micros(le[bin])}: ${percent(parts[bin])}`;
          bar.append(tip);
          svg.append(bar);
        }
      };
      bars(L.parts, "l4s", true);
      bars(C.parts, "classic", false);
      svg.append(shape("line", { x1: left, x2: width - 26, y1: middle, y2: middle, class: "axis" }));
      const write = (x, y, text, anchor) => {
        const words = shape("text", { x, y, "text-anchor": anchor });
        words.textContent = text;
        svg.append(words);
      };
      write(left - 6, 24, percent(top), "end");
      write(left - 6, middle + 4, "0", "end");
      write(left - 6, middle + 92, percent(top), "end");
      const every = Math.ceil(78 / step);
      for (let bin = first; bin < last; bin += every) {
        const x = left + (bin - first + 1) * step;
        svg.append(shape("line", { x1: x, x2: x, y1: height - 22, y2: height - 17, class: "axis" }));
        if (le[bin] !== null) write(x, height - 3, micros(le[bin]), "middle");
      }
      plot.replaceChildren(svg);
      plot.setAttribute("aria-label", `Delay of ${L.all} packets in L and ${C.all} in C; the highest bar is ${percent(top)} of a queue's packets`);
    },
  };
}

/** The delay that a share `q` of the packets of a cumulative histogram do not exceed, evenly within its bin. */
export function quantile(le, counts, q) {
  const all = counts.at(-1) ?? 0;
  if (!all) return null;
  const rank = Math.max(all * q, 1e-9);
  const bin = counts.findIndex((count) => count >= rank);
  const [lower, below] = bin === 0 ? [0, 0] : [le[bin - 1], counts[bin - 1]];
  const upper = le[bin] ?? lower;
  return lower + ((upper - lower) * (rank - below)) / (counts[bin] - below);
}
