// The minimum needed to deliver a message: its receiver, the name of its file, and the fields of the acknowledgement.
// The receiver's mailboxd validates messages; this parser reads plain `key: value` lines (the first one of duplicate
// keys) and passes anything else on to the agent. Pure functions without dependencies.

import { createHash } from "node:crypto";

export const MOST_BYTES = 4 * 1024 * 1024; // what `openclaw agent --message-file` takes
const MOST_HEADER = 64 * 1024;
const TYPES = new Set([
  "task", "reply", "ack", "plan", "question", "answer", "progress", "review", "steer", "cancel", "approval",
]);
const ID = /^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const LINE = /^([A-Za-z_][A-Za-z0-9_]{0,63})[ \t]*:(?:[ \t]+(.*))?$/;
const OPENING = /^---[ \t]*(\r?\n)/;
const CLOSING = /(?<=\n)---[ \t]*\r?(?:\n|$)/g;

// The message in `text`, or null.
export function readMessage(text) {
  const opening = OPENING.exec(text);
  if (opening === null) return null;
  CLOSING.lastIndex = opening[0].length;
  const closing = CLOSING.exec(text);
  if (closing === null || closing.index > MOST_HEADER) return null;
  const headers = readHeaders(text.slice(opening[0].length, closing.index));
  if (!TYPES.has(headers.type) || !isId(headers.from)) return null;
  if (headers.type !== "approval" && !isId(headers.task_id)) return null;
  return { text, headers, newline: opening[1], bodyStart: CLOSING.lastIndex };
}

// Whether the message is for this agent: it names the agent or, as in clawflow, no receiver.
export function isFor(message, agent) {
  const to = message.headers.to;
  return to === undefined || to === "" || to.toLowerCase() === agent.toLowerCase();
}

// The bytes that were sent, or null if they cannot be restored. OpenClaw trims the end of a message. One line end like
// that of the first line is appended, as mailboxd ends every message. If `bytes` or `sha256` of the body are declared,
// they determine the number of line ends.
export function restore(message) {
  const { text, headers, newline, bodyStart } = message;
  const { bytes, sha256 } = headers;
  if (text !== text.trimEnd()) return Buffer.from(text); // nothing was trimmed
  if (bytes === undefined && sha256 === undefined) return Buffer.from(text + newline);
  const body = Buffer.from(text.slice(bodyStart));
  const whole = bodyStart < text.length ? text : text + newline; // without a body, the line end of the fence was trimmed
  const missing = /^[0-9]{1,12}$/.test(bytes ?? "") ? Number(bytes) - body.length : null;
  for (const end of ends(newline, missing)) {
    const found = createHash("sha256").update(body).update(end).digest("hex");
    if (sha256 === undefined || sha256.toLowerCase() === found) return Buffer.from(whole + end);
  }
  return null;
}

function ends(newline, missing) {
  if (missing === null) return [1, 0, 2, 3].map((count) => newline.repeat(count));
  if (missing < 0 || missing > 1024) return [];
  return ["\n", "\r\n"].filter((end) => missing % end.length === 0).map((end) => end.repeat(missing / end.length));
}

// The name of its file: readable, safe, and equal for equal bytes, so that a duplicate replaces itself.
export function fileName(message, raw) {
  const { message_id, task_id, subtask_id, type } = message.headers;
  const ids = isId(message_id) ? [message_id] : [task_id, subtask_id].filter(isId);
  const digest = createHash("sha256").update(raw).digest("hex").slice(0, 32);
  return `${[...ids, type].join(".").slice(0, 200)}.${digest}.md`;
}

// The acknowledgement, with fields only if they are valid ids. It has no reply token, because OpenClaw logs answers and
// the sender knows which call this answers.
export function acknowledge(message, agent) {
  const { task_id, subtask_id, from, message_id, attempt, attempt_id } = message.headers;
  const said = [
    ["type", "ack"],
    ["task_id", isId(task_id) ? task_id : undefined],
    ["subtask_id", isId(subtask_id) ? subtask_id : undefined],
    ["from", agent],
    ["to", from],
    ["in_reply_to", isId(message_id) ? message_id : undefined],
    ["attempt", /^[0-9]{1,9}$/.test(attempt ?? "") ? attempt : undefined],
    ["attempt_id", isId(attempt_id) ? attempt_id : undefined],
  ];
  const lines = said.filter(([, value]) => value !== undefined).map(([key, value]) => `${key}: ${quoted(value)}\n`);
  return `---\n${lines.join("")}---\n`;
}

function readHeaders(block) {
  const headers = Object.create(null);
  for (const line of block.split(/\r?\n/)) {
    const found = LINE.exec(line);
    if (found !== null && !(found[1] in headers)) headers[found[1]] = scalar(found[2] ?? "");
  }
  return headers;
}

// A plain or quoted YAML scalar on one line. Escapes in double quotes are not decoded: ids have none.
function scalar(text) {
  const value = text.trim();
  const quotes = /^(?:'((?:[^']|'')*)'|"([^"\\]*)")[ \t]*(?:#.*)?$/.exec(value);
  if (quotes !== null) return quotes[1] === undefined ? quotes[2] : quotes[1].replaceAll("''", "'");
  return value.replace(/(?:^|[ \t]+)#.*$/, "");
}

function isId(value) {
  return value !== undefined && ID.test(value);
}

function quoted(value) {
  return `'${value.replaceAll("'", "''")}'`;
}
