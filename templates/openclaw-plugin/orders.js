// Orders of people on their way to the daemon. They are in memory only: the daemon asks for them by the gateway method
// `mailboxd.orders`, carries them out, and brings the answers with its next question. An order is handed over until it
// is answered, under one id by which the daemon knows it again. One that nobody took in time is withdrawn, so that what
// the person is told is true: it will not happen.

import { randomUUID } from "node:crypto";

const PATIENCE_MS = 8_000; // a chat's command waits so long
const LONGEST_POLL_MS = 55_000;
const MOST = 100; // orders of one agent at a time

// By agent, in lower case: { orders, poll }. One for the process: OpenClaw may load this module again, for another part.
const desks = (globalThis[Symbol.for("mailboxd.orders")] ??= new Map());

// Gives an order and waits for what becomes of it: `{ state, text }`. `done`: the daemon's answer. `withdrawn`: no
// daemon took it, and none will. `unknown`: a daemon took it and has not answered.
export function give(agent, order, patience = PATIENCE_MS) {
  const desk = deskOf(agent);
  if (desk.orders.size >= MOST) return Promise.resolve({ state: "withdrawn", text: "" });
  const id = randomUUID();
  return new Promise((resolve) => {
    const settle = (state, text = "") => {
      clearTimeout(timer);
      desk.orders.delete(id);
      resolve({ state, text });
    };
    const timer = setTimeout(() => settle(desk.orders.get(id)?.isTaken ? "unknown" : "withdrawn"), patience);
    const said = { ...order, id, at: new Date().toISOString() };
    desk.orders.set(id, { said, isTaken: false, settle });
    desk.poll?.wake();
  });
}

// The daemon's question: takes the answers that it brings, and resolves to the orders that are open, as soon as there
// are any. A newer question takes the place of one that still waits, whose daemon may be gone.
export function take(agent, done, waitMs) {
  const desk = deskOf(agent);
  desk.poll?.end([]);
  for (const { id, text } of done) desk.orders.get(id)?.settle("done", text);
  if (desk.orders.size > 0) return Promise.resolve(handOver(desk));
  return new Promise((resolve) => {
    const end = (orders) => {
      clearTimeout(timer);
      if (desk.poll === poll) desk.poll = null;
      resolve(orders);
    };
    const timer = setTimeout(() => end([]), Math.min(Math.max(waitMs, 0), LONGEST_POLL_MS));
    const poll = { end, wake: () => end(handOver(desk)) };
    desk.poll = poll;
  });
}

function handOver(desk) {
  return [...desk.orders.values()].map((order) => {
    order.isTaken = true;
    return order.said;
  });
}

function deskOf(agent) {
  const name = agent.toLowerCase();
  if (!desks.has(name)) desks.set(name, { orders: new Map(), poll: null });
  return desks.get(name);
}

export function register(api) {
  api.registerGatewayMethod(
    "mailboxd.orders",
    async ({ params, respond }) => {
      try {
        const { agent, waitMs, done } = params ?? {};
        if (typeof agent !== "string" || agent === "" || agent.length > 128) {
          respond(false, undefined, { code: "INVALID_REQUEST", message: "mailboxd.orders needs an agent" });
          return;
        }
        const answers = (Array.isArray(done) ? done : []).filter(
          (one) => typeof one?.id === "string" && typeof one?.text === "string",
        );
        respond(true, { orders: await take(agent, answers, Number.isFinite(waitMs) ? waitMs : 0) });
      } catch (problem) {
        api.logger.error(`mailboxd.orders failed: ${problem?.message ?? problem}`);
        respond(false, undefined, { code: "UNAVAILABLE", message: "mailboxd.orders failed" });
      }
    },
    { scope: "operator.write" },
  );
}
