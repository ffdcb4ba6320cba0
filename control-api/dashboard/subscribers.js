// SPDX-License-Identifier: Apache-2.0
// Finding a subscriber: what a search found, or all records page by page; and the list of the API's calls.
import { call } from "./api.js";
import { h, linkTo, linkToParent, table } from "./dom.js";
import * as format from "./format.js";

const PAGE = 50;
const heads = [{ text: "Subscriber" }, { text: "Down", number: true }, { text: "Up", number: true }, { text: "Profile" }, { text: "Matches" }];
const row = (record) => [h("a", { href: linkTo(record.id) }, record.id), format.bps(record.down_bps), format.bps(record.up_bps), record.profile, h("span", { class: "breaks" }, format.matching(record.match))];

async function searched(text) {
  const { body } = await call(`v1/search?limit=${PAGE}&q=${encodeURIComponent(text)}`);
  const found = body.items.map(({ by, subscriber }) => [...row(subscriber), by]);
  const all = found.length + body.parents.length;
  const say = body.more ? `More than ${all} fit; these fit best. Say more to see fewer.` : `${all} found`;
  return { heads: [...heads, { text: "Found by" }], rows: found, parents: body.parents, say, empty: "No subscriber has a name, address, VLAN or PPPoE session like this." };
}

async function listed(after) {
  const { body } = await call(`v1/subscribers?limit=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ""}`);
  const say = `${format.whole(body.total)} in all${after ? `, those behind ${after}` : ""}`;
  return { heads, rows: body.items.map(row), say, empty: "There are no records yet.", next: body.next };
}

/** Aggregates that a search found. */
function aggregates(found) {
  const shown = table("Aggregates", [{ text: "Aggregate" }, { text: "Down", number: true }, { text: "Up", number: true }, { text: "Below" }]);
  shown.set(found.map(({ id, down_bps, up_bps, parent }) => [h("a", { href: linkToParent(id) }, id), format.bps(down_bps), format.bps(up_bps), parent ? h("a", { href: linkToParent(parent) }, parent) : ""]), "");
  return h("section", { id: "found-parents" }, h("h2", {}, "Aggregates"), shown.element, h("h2", {}, "Subscribers"));
}

export function subscribers(app, query) {
  const [text, after] = [query.get("q")?.trim() ?? "", query.get("after")];
  const note = h("p", { class: "muted", role: "status", id: "found" }, "asking …");
  const place = h("div", {});
  const kinds = h("p", { class: "muted" }, "Narrow it down with ", ["id:", "ip:", "vlan:", "pppoe:", "mac:"].flatMap((kind) => [h("code", {}, kind), " "]), "as in ", h("code", {}, "vlan:100.42"), " or ", h("code", {}, "ip:2001:db8::1"), ".");
  const load = async () => {
    try {
      const found = await (text ? searched(text) : listed(after));
      const shown = table("Subscribers", found.heads);
      shown.set(found.rows, found.empty);
      note.textContent = found.say;
      place.replaceChildren(found.parents?.length ? aggregates(found.parents) : "", shown.element, found.next ? h("p", {}, h("a", { class: "more", href: `#/subscribers?after=${encodeURIComponent(found.next)}` }, "Next page")) : "");
    } catch (error) {
      app.failed(error);
      note.textContent = `Not found out: ${error.message}`;
      note.className = "error";
    }
  };
  load();
  return {
    element: h("section", { class: "card", id: "subscribers" }, h("h1", {}, text ? `Subscribers like “${text}”` : "Subscribers"), note, place, kinds),
    title: text ? `${text} – search` : "Subscribers",
    update() {},
    end() {},
  };
}

export function calls(app) {
  const place = h("div", {}, h("p", { class: "muted" }, "asking …"));
  const load = async () => {
    try {
      const { body } = await call("v1/openapi.json");
      const shown = table("Calls", [{ text: "Call" }, { text: "What it does" }]);
      shown.set(Object.entries(body.paths).flatMap(([path, item]) => Object.entries(item).filter(([, about]) => about.summary)
        .map(([method, about]) => [h("code", {}, `${method.toUpperCase()} ${path}`), about.summary])), "");
      place.replaceChildren(shown.element);
    } catch (error) {
      app.failed(error);
      place.replaceChildren(h("p", { class: "error" }, error.message));
    }
  };
  load();
  return {
    element: h("section", { class: "card", id: "calls" }, h("h1", {}, "Calls of the API"), h("p", { class: "muted" }, "In full: ", h("code", {}, "/v1/openapi.json"), ". With a token each needs the header ", h("code", {}, "Authorization: Bearer"), "."), place),
    title: "API",
    update() {},
    end() {},
  };
}
