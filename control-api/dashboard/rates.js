// SPDX-License-Identifier: Apache-2.0
// Changing the rates of a record in place: what is typed, a question, the server's answer.
import { Problem, call } from "./api.js";
import { h, say } from "./dom.js";
import * as format from "./format.js";

const MBIT = 1e6;

/** A form for both rates of the record `id` at `path`; `apply` takes the server's answer, `calm` says what a change does not do. */
export function rates(app, id, path, calm, apply) {
  const fields = {};
  for (const [name, text] of [["down_bps", "Down"], ["up_bps", "Up"]]) {
    const error = h("p", { class: "error", id: `${name}-error`, role: "alert" });
    const input = h("input", { id: name, name, type: "number", step: "any", min: "0", required: true, inputmode: "decimal", "aria-describedby": `${name}-error` });
    fields[name] = { text, input, error, element: h("div", { class: "field" }, h("label", { for: name }, `${text}, Mb/s`), input, error) };
  }
  const answer = h("div", { class: "answer", id: "answer", role: "status" });
  const submit = h("button", { type: "submit", class: "go", id: "change" }, "Change…");
  const form = h("form", { id: "rates", novalidate: true, "aria-label": "Rates" }, h("div", { class: "fields" }, Object.values(fields).map((field) => field.element), submit), answer);
  const question = h("p", { id: "ask-text" });
  const doubt = h("p", { class: "error" }, "That is ten times more or less than it has. Is the unit right?");
  const yes = h("button", { type: "submit", value: "yes", class: "go", id: "confirm" }, "Change it now");
  const ask = h("dialog", { id: "ask", "aria-labelledby": "ask-title", "aria-describedby": "ask-text" }, h("form", { method: "dialog" },
    h("h2", { id: "ask-title" }, `Change the rates of ${id}?`), question, doubt,
    h("p", { class: "muted" }, calm),
    h("p", { class: "buttons" }, h("button", { type: "submit", value: "no", id: "cancel" }, "Leave as they are"), yes)));
  let known = null;
  let wanted = null;

  const complain = (name, text) => {
    const field = fields[name];
    say(field.error, text);
    if (text) field.input.setAttribute("aria-invalid", "true");
    else field.input.removeAttribute("aria-invalid");
  };
  const clear = () => Object.keys(fields).forEach((name) => complain(name, ""));

  function tellProblem(error) {
    const others = error instanceof Problem ? error.fields.filter(({ field }) => !fields[field]) : [];
    if (error instanceof Problem) error.fields.filter(({ field }) => fields[field]).forEach(({ field, detail }) => complain(field, detail));
    answer.className = "answer bad";
    answer.replaceChildren(h("p", {}, error instanceof Problem ? `Refused with ${error.status}: ${error.message}` : `No answer: ${error.message}. Whether the change was made is not known; the figures above will show it.`),
      ...others.map(({ field, detail }) => h("p", {}, h("code", {}, field), ` ${detail}`)));
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clear();
    wanted = {};
    for (const [name, { input }] of Object.entries(fields)) {
      const rate = Math.round(Number(input.value) * MBIT);
      if (input.value.trim() === "" || !Number.isFinite(rate)) complain(name, "a number of Mb/s is wanted");
      else if (rate !== known.record[name]) wanted[name] = rate;
    }
    const wrong = Object.values(fields).find(({ input }) => input.hasAttribute("aria-invalid"));
    if (wrong) return wrong.input.focus();
    if (!Object.keys(wanted).length) {
      answer.className = "answer";
      return answer.replaceChildren(h("p", {}, "These are the rates it has."));
    }
    question.textContent = Object.entries(wanted).map(([name, rate]) => `${fields[name].text}: ${format.bps(known.record[name])} → ${format.bps(rate)}.`).join(" ");
    const drastic = Object.entries(wanted).some(([name, rate]) => rate * 10 <= known.record[name] || rate >= known.record[name] * 10);
    doubt.hidden = !drastic;
    ask.returnValue = "no";
    return ask.showModal();
  });

  ask.addEventListener("close", async () => {
    submit.focus();
    if (ask.returnValue !== "yes") return;
    submit.disabled = true;
    answer.className = "answer";
    answer.replaceChildren(h("p", {}, "asking …"));
    try {
      const { status, etag, body } = await call(path, { method: "PATCH", json: wanted, etag: known.etag });
      apply(body, etag);
      answer.className = "answer good";
      answer.replaceChildren(h("p", {}, `Accepted with ${status} at ${format.clock(Date.now())}: down ${format.bps(body.down_bps)}, up ${format.bps(body.up_bps)}, revision ${etag?.replaceAll('"', "")}`),
        h("details", {}, h("summary", {}, "The record as the server answered it"), h("pre", {}, JSON.stringify(body, null, 1))));
    } catch (error) {
      app.failed(error);
      tellProblem(error);
      if (error.status === 412) answer.append(h("p", {}, "Somebody else has changed this record meanwhile; it is read again."));
    }
    submit.disabled = false;
    submit.focus();
  });

  return {
    elements: [form, ask],
    /** What is typed already stays, and so does the revision it was typed on. */
    set(record, etag) {
      const touched = known && Object.entries(fields).some(([name, { input }]) => Number(input.value) * MBIT !== known.record[name]);
      if (touched && known.etag !== etag && ask.open) return;
      for (const [name, { input }] of Object.entries(fields)) {
        if (!known || Number(input.value) * MBIT === known.record[name]) input.value = record[name] / MBIT;
      }
      known = { record, etag };
    },
  };
}
