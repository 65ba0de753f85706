// Texts for chats. What agents wrote must not become a directive of OpenClaw, a link, a mention or an invisible trick.

const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const SPLIT = "\u200b"; // no width: the words look as they are, and match nothing

export function harmless(text) {
  return String(text ?? "")
    .replace(INVISIBLE, " ")
    .replace(/MEDIA:/gi, (word) => `${word.slice(0, -1)}${SPLIT}:`)
    .replace(/\[\[/g, `[${SPLIT}[`);
}

// On one line, without marks of Markdown.
export function line(text, most = 300) {
  const flat = harmless(text)
    .replace(/\s+/g, " ")
    .replace(/`/g, "'")
    .replace(/[[\]]/g, (mark) => (mark === "[" ? "(" : ")"))
    .replace(/</g, "‹")
    .replace(/@(?=everyone|here|channel)/gi, `@${SPLIT}`)
    .trim();
  return flat.length > most ? `${flat.slice(0, most).trimEnd()}…` : flat;
}

// As it stands, in a fence that nothing in it can close.
export function block(text, most = 3_000) {
  const clean = harmless(text);
  const shown = clean.length > most ? `${clean.slice(0, most).trimEnd()}\n… and ${clean.length - most} more characters` : clean;
  const longest = Math.max(2, ...[...shown.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${shown}\n${fence}`;
}

// `3 min ago`, `in 2 h`.
export function relative(at, now = Date.now()) {
  const seconds = (now - Date.parse(at ?? "")) / 1000;
  if (Number.isNaN(seconds)) return "";
  for (const [size, word] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    const count = Math.floor(Math.abs(seconds) / size);
    if (count >= 1) return seconds > 0 ? `${count} ${word} ago` : `in ${count} ${word}`;
  }
  return seconds >= 0 ? "just now" : "shortly";
}

// A word for a shell.
export function quoted(word) {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
