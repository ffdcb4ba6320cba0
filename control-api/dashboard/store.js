// SPDX-License-Identifier: Apache-2.0
// What the page knows of the box: the last answer of /v1/summary, the last ten minutes, the last events.

const POINTS = 600;
const EVENTS = 200;
const ONE_CHANGE_MS = 10_000;

function append(into, from) {
  for (const [name, value] of Object.entries(from)) {
    if (Array.isArray(value)) {
      const column = (into[name] ??= []);
      column.push(...value);
      column.splice(0, Math.max(column.length - POINTS, 0));
    } else {
      append((into[name] ??= {}), value);
    }
  }
}

export class Store {
  summary = null;
  events = [];
  #series = {};
  #next = null;

  /** Where to ask. Without `after` everything is told again. */
  get path() {
    return this.#next === null ? "v1/summary" : `v1/summary?after=${this.#next}`;
  }

  /** Lets the next answer tell everything anew. */
  restart() {
    this.#next = null;
  }

  take(summary) {
    const anew = this.#next === null || this.summary?.started_ms !== summary.started_ms;
    if (anew) this.#series = {};
    if (summary.events) this.events = summary.events;
    if (summary.series) append(this.#series, summary.series);
    this.#next = summary.next;
    this.summary = summary;
  }

  /** An event of the stream, which may be known from the summary already. */
  note(event) {
    if (event.missed !== undefined || this.events.some((known) => JSON.stringify(known) === JSON.stringify(event))) return;
    const last = this.events.at(-1);
    if (event.event === "config" && last?.event === "config" && event.at_ms - last.at_ms < ONE_CHANGE_MS) {
      if (event.at_ms <= last.at_ms) return;
      for (const name of ["created", "updated", "deleted"]) last[name] += event[name];
      last.at_ms = event.at_ms;
      return;
    }
    this.events.push(event);
    this.events.splice(0, Math.max(this.events.length - EVENTS, 0));
  }

  /** Times of the points in seconds. */
  get times() {
    return (this.#series.at_ms ?? []).map((at) => at / 1000);
  }

  /** A column, as in `down.l4s.delay.p99_us`; `place` picks one lcore or port. */
  column(path, place) {
    const found = path.split(".").reduce((part, name) => part?.[name], this.#series) ?? [];
    return place === undefined ? found : found.map((row) => row[place] ?? null);
  }

  /** Subscribers and directions in overload now, as far as the events kept tell. */
  get overloads() {
    const open = new Map();
    for (const event of this.events) {
      if (event.event === "overload_start") open.set(`${event.dir} ${event.id}`, event);
      if (event.event === "overload_end") open.delete(`${event.dir} ${event.id}`);
    }
    return [...open.values()];
  }
}
