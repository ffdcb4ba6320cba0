// SPDX-License-Identifier: Apache-2.0
// What happened in queues between two answers of a stats call.
import { chart, quantile } from "./charts.js";
import * as format from "./format.js";

export const DROPS = [["AQM, ECN-capable", "dropped_ect", "drop-overload"], ["AQM, Not-ECT", "dropped_not_ect", "drop-aqm"], ["tail", "dropped_tail", "drop-tail"], ["pool", "dropped_pool", "drop-pool"], ["other", "dropped_other", "drop-link"]];

export const dropped = (queue) => DROPS.reduce((sum, [, name]) => sum + queue[name], 0);

/** What happened in a queue between two answers `seconds` apart. */
function between(before, after, seconds) {
  const grown = (name) => Math.max(after[name] - before[name], 0);
  const counts = after.delay_us.count.map((count, bin) => Math.max(count - (before.delay_us.count[bin] ?? 0), 0));
  const sent = grown("forwarded");
  return {
    packets: sent / seconds,
    bytes: grown("forwarded_bytes") / seconds,
    marked: sent ? Math.min(grown("marked") / sent, 1) : 0,
    drops: Object.fromEntries(DROPS.map(([, name]) => [name, grown(name) / seconds])),
    p50: quantile(after.delay_us.le, counts, 0.5),
    p99: quantile(after.delay_us.le, counts, 0.99),
    counts,
  };
}

/** Both queues, and the rate with the overhead that the shaper counts. */
export function way(before, after, seconds, overhead) {
  const [l4s, classic] = ["l4s", "classic"].map((queue) => between(before[queue], after[queue], seconds));
  const packets = l4s.packets + classic.packets;
  const drops = Object.fromEntries(DROPS.map(([, name]) => [name, l4s.drops[name] + classic.drops[name]]));
  return { l4s, classic, packets, drops, shaped: 8 * (l4s.bytes + classic.bytes + overhead * packets) };
}

/** A chart of delays, whose rows are L4S p99 and p50, Classic p99 and p50. */
export function delays(title, note) {
  const rows = [["L4S p99", "l4s"], ["L4S p50", "l4s", true], ["Classic p99", "classic"], ["Classic p50", "classic", true]];
  return chart(title, rows.map(([label, colour, faint]) => ({ label, colour, faint })), { format: format.micros, log: true, note, id: "chart-delay" });
}
