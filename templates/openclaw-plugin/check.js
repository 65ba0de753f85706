// Whether a call can be an answer: what its schema says, and what a schema cannot say. Pure functions. The daemon reads
// the answer again; what only it sees, it asks about in another turn.

const SILENCE = new Set(["NO_REPLY", "REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK"]);
const MOST = 20;
const DEEPEST = 40;
const MOST_LEVELS = 90; // the daemon takes no call that is nested deeper than 100 levels, whatever the schema says
// OpenClaw leaves a message of more than 128 KiB out of the history that is asked for: the call could not be proven.
const MOST_BYTES = 100_000;

// All that is wrong with `args` for this tool, each as a sentence; empty if nothing is.
export function problemsOf({ name, parameters }, args, turn) {
  if (isTooDeep(args)) return ["the arguments: nested too deep"];
  const bytes = Buffer.byteLength(JSON.stringify(args) ?? "");
  if (bytes > MOST_BYTES) {
    return [`the arguments: ${bytes} bytes, and a call takes ${MOST_BYTES}; shorten them, or send the finished work as plain text`];
  }
  const found = [];
  against(parameters, args, "", found, 0);
  try {
    CHECKS[name]?.(args, turn, found);
  } catch {
    // what the schema does not take need not be what a check expects; else the daemon decides
  }
  return found.length > MOST ? [...found.slice(0, MOST), `and ${found.length - MOST} more`] : found;
}

function isTooDeep(value) {
  let level = [value];
  for (let count = 0; count < MOST_LEVELS && level.length > 0; count += 1) {
    level = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []));
  }
  return level.length > 0;
}

const CHECKS = {
  mailboxd_finish: ({ result }, _turn, found) => silence("result", result, found),
  mailboxd_answer: ({ reason }, _turn, found) => silence("reason", reason, found),
  mailboxd_verdict: verdict,
  mailboxd_plan: plan,
};

function silence(name, text, found) {
  if (SILENCE.has(text.trim())) found.push(`${name}: ${text.trim()} is no answer`);
}

function verdict({ verdict: said, findings = [] }, _turn, found) {
  const grave = findings.findIndex(({ severity }) => severity !== "minor");
  if (said === "approved" && grave >= 0) {
    found.push(`verdict: approved, but findings.${grave} is ${findings[grave].severity}; request changes, or approve without it`);
  }
  if (said === "changes_requested" && findings.length === 0) {
    found.push("findings: changes_requested needs at least one finding that says what to change");
  }
}

function plan({ subtasks, synthesis }, turn, found) {
  const needs = needsOf(subtasks, turn, found);
  const known = turn.subtasks === null ? null : new Set([...(turn.subtasks ?? []), ...needs.keys()]);
  for (const [id, { at, on }] of needs) {
    for (const one of on) {
      if (known !== null && !known.has(one)) found.push(`${at}.depends_on: there is no subtask ${one}`);
      if (one === id) found.push(`${at}.depends_on: ${id} depends on itself`);
    }
  }
  if (synthesis && known !== null && !known.has(synthesis)) found.push(`synthesis: there is no subtask ${synthesis}`);
  const circle = circleIn(needs);
  if (circle !== null) found.push(`subtasks depend on each other in a circle: ${circle.join(" -> ")}`);
}

// What each subtask depends on, by its id. Plans inside a subtask are left to the daemon.
function needsOf(subtasks, turn, found) {
  const needs = new Map();
  const keys = new Set(turn.keys ?? []);
  subtasks.forEach((child, number) => {
    const here = `subtasks.${number}`;
    if (!isObject(child) || typeof child.id !== "string") return; // the schema says so, or the reader
    for (const key of Object.keys(child)) {
      if (keys.size > 0 && !keys.has(key) && !key.startsWith("x-")) found.push(`${here}.${key}: no such key`);
    }
    if (needs.has(child.id)) found.push(`${here}.id: there are two subtasks called ${child.id}`);
    const on = Array.isArray(child.depends_on) ? child.depends_on : [];
    needs.set(child.id, { at: here, on: on.filter((one) => typeof one === "string") });
  });
  return needs;
}

// A circle of dependencies, as the ids on it; null if there is none.
function circleIn(needs) {
  const state = new Map();
  for (const start of needs.keys()) {
    if (state.has(start)) continue;
    const path = [{ id: start, next: 0 }];
    state.set(start, 1);
    while (path.length > 0) {
      const top = path.at(-1);
      const on = needs.get(top.id).on;
      if (top.next === on.length) {
        state.set(top.id, 2);
        path.pop();
        continue;
      }
      const id = on[top.next++];
      if (!needs.has(id) || state.get(id) === 2 || id === top.id) continue;
      if (state.get(id) === 1) return [...path.slice(path.findIndex((one) => one.id === id)).map((one) => one.id), id];
      state.set(id, 1);
      path.push({ id, next: 0 });
    }
  }
  return null;
}

// The part of JSON Schema that the daemon uses. Numbers may be written as text and text as numbers, as OpenClaw takes them.
function against(schema, value, at, found, depth) {
  const place = at === "" ? "the arguments" : at;
  if (depth > DEEPEST) return found.push(`${place}: nested too deep`);
  if (schema.anyOf) {
    const tries = schema.anyOf.map((one) => against(one, value, at, [], depth + 1));
    const best = schema.anyOf.findIndex((one) => (one.type === "array") === Array.isArray(value));
    if (!tries.some((one) => one.length === 0)) found.push(...tries[Math.max(best, 0)]);
    return found;
  }
  if (schema.enum && !schema.enum.includes(value)) {
    found.push(`${place}: must be one of ${schema.enum.slice(0, 50).join(", ")}, not ${shown(value)}`);
  }
  if (schema.type === "object") return object(schema, value, at, place, found, depth);
  if (schema.type === "array") return array(schema, value, at, place, found, depth);
  if (schema.type === "integer" && !Number.isInteger(typeof value === "string" && value.trim() ? Number(value) : value)) {
    found.push(`${place}: must be a whole number, not ${shown(value)}`);
  } else if (schema.minimum !== undefined && Number(value) < schema.minimum) {
    found.push(`${place}: must be at least ${schema.minimum}`);
  }
  if (schema.type === "string") text(schema, value, place, found);
  return found;
}

function object(schema, value, at, place, found, depth) {
  if (!isObject(value)) {
    found.push(`${place}: must be an object, not ${shown(value)}`);
    return found;
  }
  const known = schema.properties ?? {};
  const inside = (key) => (at === "" ? key : `${at}.${key}`);
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(value, key)) found.push(`${inside(key)}: is missing`);
  }
  for (const [key, one] of Object.entries(value)) {
    if (Object.hasOwn(known, key)) against(known[key], one, inside(key), found, depth + 1);
    else if (schema.additionalProperties === false) {
      found.push(`${inside(key)}: no such key; there are ${Object.keys(known).join(", ")}`);
    }
  }
  return found;
}

function array(schema, value, at, place, found, depth) {
  if (!Array.isArray(value)) {
    found.push(`${place}: must be a list, not ${shown(value)}`);
    return found;
  }
  if (value.length < (schema.minItems ?? 0)) found.push(`${place}: needs at least ${schema.minItems}`);
  if (value.length > (schema.maxItems ?? Infinity)) found.push(`${place}: takes at most ${schema.maxItems}`);
  if (schema.items) value.forEach((one, number) => against(schema.items, one, `${at}.${number}`, found, depth + 1));
  return found;
}

function text(schema, value, place, found) {
  if (typeof value === "number" || typeof value === "boolean") value = String(value);
  if (typeof value !== "string") found.push(`${place}: must be text, not ${shown(value)}`);
  else if (schema.minLength && value.trim() === "") found.push(`${place}: must not be empty`);
  else if (schema.pattern && !new RegExp(schema.pattern).test(value)) {
    found.push(`${place}: ${shown(value)} is not 1 to 128 of A-Z a-z 0-9 . _ - (not beginning with . or -, without ..)`);
  }
}

// Something that the schema takes.
export function sample(schema) {
  if (schema.anyOf) return sample(schema.anyOf[0]);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return Array.from({ length: schema.minItems ?? 0 }, () => sample(schema.items));
  if (schema.type === "integer") return schema.minimum ?? 0;
  if (schema.type !== "object") return "x";
  return Object.fromEntries((schema.required ?? []).map((key) => [key, sample(schema.properties[key])]));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shown(value) {
  const said = JSON.stringify(value) ?? String(value);
  return said.length > 80 ? `${said.slice(0, 80)}...` : said;
}
