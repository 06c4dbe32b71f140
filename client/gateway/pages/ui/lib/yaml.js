// YAML as far as a spec needs it: maps, lists, texts, numbers, and JSON in between. No anchors, no
// tags, no second document: what it does not know is refused with its line.
export class YamlError extends Error {}

const PLAIN = /^[A-Za-z_/.][\w ./@()+-]*[\w./)]$|^[A-Za-z_]$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~)$/i;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const DEPTH_MAX = 40;

const quoted = (text) => (PLAIN.test(text) && !WORDS.test(text) && !/^\.?\d/.test(text) ? text : JSON.stringify(text));

function scalar(value) {
  if (typeof value === "string") return quoted(value);
  return JSON.stringify(value ?? null);
}

const isEmpty = (value) => typeof value === "object" && value !== null && !Object.keys(value).length;
const isBlock = (value) => typeof value === "object" && value !== null && !isEmpty(value);

export function dump(value, indent = 0) {
  const pad = "  ".repeat(indent);
  if (!isBlock(value)) return `${pad}${isEmpty(value) ? JSON.stringify(value) : scalar(value)}\n`;
  if (Array.isArray(value)) {
    return value.map((one) => (isBlock(one) ? `${pad}- ${dump(one, indent + 1).trimStart()}` : `${pad}- ${dump(one).trimStart()}`)).join("");
  }
  return Object.entries(value).map(([name, one]) => {
    const key = `${pad}${quoted(name)}:`;
    if (typeof one === "string" && one.includes("\n") && !/^\s|\s$|[^\S\n]\n|\r/.test(one)) {
      return `${key} |-\n${one.split("\n").map((line) => (line ? `${pad}  ${line}` : "")).join("\n")}\n`;
    }
    return isBlock(one) ? `${key}\n${dump(one, indent + 1)}` : `${key} ${dump(one).trimStart()}`;
  }).join("");
}

// The end of a text in quotes that begins at `at`.
function textEnd(text, at) {
  const sign = text[at];
  for (let end = at + 1; end < text.length; end += 1) {
    if (sign === '"' && text[end] === "\\") end += 1;
    else if (text[end] === sign) {
      if (sign === "'" && text[end + 1] === "'") end += 1;
      else return end + 1;
    }
  }
  return -1;
}

function withoutComment(text) {
  for (let at = 0; at < text.length; at += 1) {
    const opens = at === 0 || /[\s:[{,-]/.test(text[at - 1]);
    if ((text[at] === '"' || text[at] === "'") && opens) {
      const end = textEnd(text, at);
      if (end < 0) return text;
      at = end - 1;
    } else if (text[at] === "#" && (at === 0 || /\s/.test(text[at - 1]))) return text.slice(0, at).trimEnd();
  }
  return text.trimEnd();
}

// Where the name of a map's entry ends: before ": " or ":" at the end, outside of quotes.
function nameEnd(text) {
  const from = text[0] === '"' || text[0] === "'" ? Math.max(0, textEnd(text, 0)) : 0;
  const found = /:(\s|$)/.exec(text.slice(from));
  return found ? from + found.index : -1;
}

class Reader {
  constructor(text) {
    this.raw = text.split(/\r?\n/);
    this.at = 0;
  }

  fail(why, line = this.at) {
    throw new YamlError(`line ${line + 1}: ${why}`);
  }

  // The next line with something on it, or null.
  peek() {
    for (; this.at < this.raw.length; this.at += 1) {
      const line = this.raw[this.at];
      const body = withoutComment(line.trimStart());
      if (!body || (body === "---" && line.startsWith("---"))) continue;
      if (/^\s*\t/.test(line)) this.fail("a tab stands where spaces are meant");
      return { indent: line.length - line.trimStart().length, body };
    }
    return null;
  }

  block(indent, depth = 0) {
    if (depth > DEPTH_MAX) this.fail("it is nested too deep");
    const line = this.peek();
    if (!line || line.indent < indent) return null;
    if (/^-(\s|$)/.test(line.body)) return this.list(line.indent, depth);
    if (nameEnd(line.body) >= 0 && !/^[[{]/.test(line.body)) return this.map(line.indent, depth);
    this.at += 1;
    return this.value(line.body, this.at - 1);
  }

  list(indent, depth) {
    const made = [];
    for (;;) {
      const line = this.peek();
      if (!line || line.indent < indent) return made;
      // A list may begin below the name it belongs to, without going in: the next name ends it.
      if (line.indent === indent && !/^-(\s|$)/.test(line.body)) return made;
      if (line.indent > indent) this.fail("an entry of the list begins with “- ” below the others");
      const rest = line.body.slice(1).trimStart();
      if (!rest) {
        this.at += 1;
        made.push(this.block(indent + 1, depth + 1));
      } else {
        // What follows the dash stands where it begins.
        const raw = this.raw[this.at];
        const begins = raw.indexOf(rest, indent + 1);
        this.raw[this.at] = " ".repeat(begins) + raw.slice(begins);
        made.push(this.block(indent + 1, depth + 1));
      }
    }
  }

  map(indent, depth) {
    const made = {};
    for (;;) {
      const line = this.peek();
      if (!line || line.indent < indent) return made;
      const end = nameEnd(line.body);
      if (line.indent > indent || end < 0 || /^-(\s|$)/.test(line.body)) this.fail("“name: value” is meant here, below the others");
      const name = String(this.value(line.body.slice(0, end).trim(), this.at));
      if (Object.hasOwn(made, name)) this.fail(`${name} is there already`);
      const rest = line.body.slice(end + 1).trim();
      const place = this.at;
      this.at += 1;
      if (/^[|>][-+]?$/.test(rest)) made[name] = this.text(indent, rest);
      else if (rest) made[name] = this.value(rest, place);
      else {
        const next = this.peek();
        const below = next && (next.indent > indent || (next.indent === indent && /^-(\s|$)/.test(next.body)));
        made[name] = below ? this.block(next.indent, depth + 1) : null;
      }
    }
  }

  // A text of several lines behind "|" or ">".
  text(indent, sign) {
    const lines = [];
    let own = -1;
    for (; this.at < this.raw.length; this.at += 1) {
      const line = this.raw[this.at];
      const spaces = line.length - line.trimStart().length;
      if (line.trim() && spaces <= indent) break;
      if (own < 0 && line.trim()) own = spaces;
      lines.push(line.slice(Math.max(0, own)));
    }
    while (lines.length && !lines.at(-1).trim()) lines.pop();
    const joined = sign[0] === "|" ? lines.join("\n") : lines.join("\n").replace(/(\S)\n(?=\S)/g, "$1 ");
    return sign.endsWith("-") || !lines.length ? joined : `${joined}\n`;
  }

  value(text, line) {
    if (text[0] === '"' || text[0] === "'") {
      if (textEnd(text, 0) !== text.length) this.fail("the text in quotes does not end with its line", line);
      if (text[0] === "'") return text.slice(1, -1).replaceAll("''", "'");
      return this.json(text, line);
    }
    if (text[0] === "[" || text[0] === "{") return this.flow(text, line);
    if (/^[&!|>%]/.test(text)) this.fail(`${text[0]} is not understood here; put the text in quotes`, line);
    if (/^(true|false)$/.test(text)) return text === "true";
    if (/^(null|~)$/.test(text)) return null;
    return NUMBER.test(text) ? Number(text) : text;
  }

  json(text, line) {
    try {
      return JSON.parse(text);
    } catch (error) {
      return this.fail(error.message, line);
    }
  }

  // [a, b] and {a: b} on one line, their parts in quotes or not.
  flow(text, line) {
    let at = 0;
    const skip = () => { while (/\s/.test(text[at] ?? "")) at += 1; };
    const part = (stops) => {
      skip();
      if (text[at] === "[" || text[at] === "{") return group();
      let end = at;
      if (text[at] === '"' || text[at] === "'") end = textEnd(text, at);
      else while (end < text.length && !stops.includes(text[end])) end += 1;
      if (end < 0) this.fail("the text in quotes does not end with its line", line);
      const made = text.slice(at, end).trim();
      at = end;
      if (!made) this.fail("a value is missing", line);
      return this.value(made, line);
    };
    const group = () => {
      const close = text[at] === "[" ? "]" : "}";
      const made = close === "]" ? [] : {};
      at += 1;
      for (skip(); text[at] !== close; skip()) {
        if (at >= text.length) this.fail(`${close} is missing`, line);
        const first = part(close === "]" ? ",]" : ":,}");
        skip();
        if (close === "]") made.push(first);
        else {
          if (text[at] !== ":") this.fail("“:” is missing", line);
          at += 1;
          made[first] = part(",}");
          skip();
        }
        if (text[at] === ",") at += 1;
        else if (text[at] !== close) this.fail(`“,” or ${close} is missing`, line);
      }
      at += 1;
      return made;
    };
    const made = group();
    skip();
    if (at < text.length) this.fail("something stands behind it", line);
    return made;
  }
}

export function parse(text) {
  if (/^\s*[[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new YamlError(error.message);
    }
  }
  const reader = new Reader(text);
  const line = reader.peek();
  const made = line ? reader.block(line.indent) : null;
  if (reader.peek()) reader.fail("this stands further left than what is before it");
  return made;
}
