// SPDX-License-Identifier: Apache-2.0
// Elements. Text always goes in as text: a name of a subscriber cannot become markup.

/** An element with properties (`on*` are listeners, `class`, `data-*` and `aria-*` attributes) and children. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** Sets text only where it changed, so that selections and assistive technology are left in peace. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A table in a box that scrolls by itself, with a caption for those who cannot see it. */
export function table(caption, heads) {
  const body = h("tbody");
  const row = h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head.number ? "number" : undefined }, head.text ?? head)));
  const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, row), body));
  const set = (rows, empty) => {
    const lines = rows.map((cells) => h("tr", {}, cells.map((cell, column) =>
      h(column === 0 ? "th" : "td", { scope: column === 0 ? "row" : undefined, class: heads[column].number ? "number" : undefined }, cell))));
    // what has the keyboard keeps it
    const held = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    body.replaceChildren(...(lines.length ? lines : [h("tr", {}, h("td", { colspan: heads.length, class: "muted" }, empty))]));
    if (held) [...body.querySelectorAll("a")].find((link) => link.getAttribute("href") === held)?.focus();
  };
  return { element, set };
}

/** Radio buttons side by side. */
export function choice(label, name, options, chosen, change) {
  return h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, label),
    options.map(([value, text]) => h("label", {},
      h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => change(value) }), h("span", {}, text))));
}

/** A figure with a heading and a line below it. */
export function tile(label, id) {
  const value = h("p", { class: "value" }, "–");
  const below = h("p", { class: "below" }, "");
  const element = h("div", { class: "tile", id, role: "group", "aria-label": label }, h("h3", {}, label), value, below);
  return {
    element,
    set(text, under, level) {
      say(value, text);
      say(below, under ?? "");
      element.dataset.level = level ?? "";
    },
  };
}

export const linkTo = (id) => `#/subscriber/${encodeURIComponent(id)}`;
export const linkToParent = (id) => `#/parent/${encodeURIComponent(id)}`;
