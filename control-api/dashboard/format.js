// SPDX-License-Identifier: Apache-2.0
// Figures as people read them.

const nothing = "–";
/** Between a figure and its unit no line ends. */
const gap = "\u00a0";
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Three figures that count. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value, units, step = 1000) {
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= step * 0.9995 && unit < units.length - 1) {
    left /= step;
    unit += 1;
  }
  return short(left) + (units[unit] && gap + units[unit]);
}

export const bps = (value) => (missing(value) ? nothing : scaled(value, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"]));
export const micros = (value) => (missing(value) ? nothing : scaled(value, ["µs", "ms", "s"]));
export const amount = (value) => (missing(value) ? nothing : scaled(value, ["", "k", "M", "G", "T"]));
export const perSecond = (value, what = "") => (missing(value) ? nothing : `${amount(value)}${what && gap + what}/s`);
export const whole = (value) => (missing(value) ? nothing : Math.round(value).toLocaleString("en"));

export function percent(ratio) {
  if (missing(ratio)) return nothing;
  const value = ratio * 100;
  if (value !== 0 && Math.abs(value) < 0.01) return `${value > 0 ? "<0.01" : "0"}${gap}%`;
  return `${short(value)}${gap}%`;
}

/** On an axis, where every figure is a round one: without zeros behind the point. */
export const onAxis = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");

const two = (value) => String(value).padStart(2, "0");

/** The time of day here. */
export function clock(ms) {
  const time = new Date(ms);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

export function lasting(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** What matches a record, on one line. */
export function matching(match) {
  const parts = [...(match.ipv4 ?? []), ...(match.ipv6 ?? [])];
  if (match.vlan) parts.push(`VLAN ${match.vlan.outer}${match.vlan.inner ? `.${match.vlan.inner}` : ""}`);
  if (match.pppoe) parts.push(`PPPoE ${match.pppoe.session}${match.pppoe.mac ? ` of ${match.pppoe.mac}` : ""}`);
  if (match.port) parts.push(`port ${match.port}`);
  return parts.join(", ");
}
