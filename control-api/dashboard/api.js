// SPDX-License-Identifier: Apache-2.0
// The shaper's HTTP interface: calls, problems (RFC 9457), the token, and the stream of events.
//
// The token lives in sessionStorage: it goes with the tab. Events are read with fetch, for EventSource cannot send it.

const KEY = "sluice-token";
const PATIENCE_MS = 5000;
const AGAIN_MS = 2000;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

/** An answer that is an error. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `status ${status}`);
    this.status = status;
    this.body = body;
  }

  /** What is wrong, field by field. */
  get fields() {
    if (Array.isArray(this.body.errors) && this.body.errors.length) {
      return this.body.errors.map(({ field, detail }) => ({ field: field ?? "", detail }));
    }
    return this.body.field ? [{ field: this.body.field, detail: this.message }] : [];
  }
}

/** No answer at all. */
export class Unreachable extends Error {}

function withToken(headers = {}) {
  const text = token.get();
  return text ? { ...headers, authorization: `Bearer ${text}` } : headers;
}

async function send(path, options) {
  try {
    return await fetch(path, { cache: "no-store", ...options, headers: withToken(options.headers) });
  } catch (error) {
    throw new Unreachable(error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1000} s` : "no connection");
  }
}

async function problem(answer) {
  const body = await answer.json().catch(() => ({}));
  return new Problem(answer.status, body);
}

/** Calls and returns `{ status, etag, body }`; throws `Problem` or `Unreachable`. */
export async function call(path, { method = "GET", json, etag } = {}) {
  const headers = {};
  if (json !== undefined) headers["content-type"] = "application/json";
  if (etag) headers["if-match"] = etag;
  const body = json === undefined ? undefined : JSON.stringify(json);
  const answer = await send(path, { method, headers, body, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw await problem(answer);
  try {
    return { status: answer.status, etag: answer.headers.get("etag"), body: await answer.json() };
  } catch {
    throw new Unreachable("the answer ended early");
  }
}

export const subscriberPath = (id, rest = "") => `v1/subscribers/${encodeURIComponent(id)}${rest}`;
export const parentPath = (id, rest = "") => `v1/parents/${encodeURIComponent(id)}${rest}`;

/** Lines of a stream. */
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const pieces = (rest + value).split("\n");
    rest = pieces.pop();
    yield* pieces;
  }
}

/** Follows `/v1/events` until `signal` fires. `state(undefined)`: it is open; else why not. */
export async function follow(signal, event, state) {
  while (!signal.aborted) {
    try {
      const answer = await send("v1/events", { headers: { accept: "text/event-stream" }, signal });
      if (!answer.ok) throw await problem(answer);
      state(undefined);
      for await (const line of lines(answer.body)) {
        if (line.startsWith("data: ")) event(JSON.parse(line.slice(6)));
      }
      state("the stream ended");
    } catch (error) {
      if (signal.aborted) return;
      state(error.message);
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}
