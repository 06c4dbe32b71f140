// Shows openapi.json to people. Text of the description is only ever put in as text.

const VERBS = ["get", "post", "put", "patch", "delete"];
const INNER_DEPTH = 6;
const at = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...below) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== "") made.setAttribute(name, value);
  }
  made.append(...below.filter((one) => one !== undefined && one !== ""));
  return made;
}

// "DeadLetter" as "Dead letter".
function spaced(name) {
  return name.replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

// `code` in backticks; all else as it is.
function inline(text) {
  return text.split(/`([^`]*)`/).map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

function told(text = "") {
  const made = make("div", { class: "told" });
  for (const block of text.trim().split(/\n\n+/).filter(Boolean)) {
    const lines = block.split("\n");
    const first = lines.findIndex((line) => /^[*-] /.test(line));
    const before = (first < 0 ? lines : lines.slice(0, first)).join(" ");
    if (before) made.append(make("p", {}, ...inline(before)));
    if (first < 0) continue;
    const items = [];
    for (const line of lines.slice(first)) {
      if (/^[*-] /.test(line)) items.push(line.slice(2));
      else items[items.length - 1] += ` ${line.trim()}`;
    }
    made.append(make("ul", {}, ...items.map((item) => make("li", {}, ...inline(item)))));
  }
  return made;
}

class Reference {
  constructor(described) {
    this.described = described;
  }

  resolve(schema) {
    if (!schema.$ref) return schema;
    return schema.$ref.slice(2).split("/").reduce((held, name) => held[name], this.described);
  }

  type(schema) {
    if (schema.$ref) return schema.$ref.split("/").pop();
    if (schema.anyOf) return schema.anyOf.map((one) => this.type(one)).join(" or ");
    if (schema.type === "array") return `list of ${this.type(schema.items)}`;
    if (schema.additionalProperties) return `map to ${this.type(schema.additionalProperties)}`;
    const kind = schema.contentEncoding ?? schema.format ?? (schema.pattern ? "duration" : "");
    return [[schema.type ?? "any"].flat().join(" or "), kind].filter(Boolean).join(", ");
  }

  // What is below a type: fields of a message, or values of an enum, opened on demand.
  inner(schema, depth) {
    const below = schema.type === "array" ? schema.items : schema.additionalProperties || schema;
    const choices = below.anyOf ?? [below];
    return choices.filter((one) => one.$ref).map((one) => {
      const found = this.resolve(one);
      const name = this.type(one);
      if (depth <= 0 || !(found.properties || found.enum)) return "";
      const made = make("details", { class: "inner" }, make("summary", {}, name));
      made.addEventListener("toggle", () => {
        if (made.open && made.children.length === 1) {
          made.append(told(found.description), this.fields(found, depth - 1));
        }
      });
      return made;
    });
  }

  fields(schema, depth) {
    const all = Object.entries(schema.properties ?? {});
    return make("dl", {}, ...all.map(([name, field]) => {
      const must = schema.required?.includes(name) ? "always" : "";
      return this.field(name, field, field.readOnly ? "output only" : must, field.description, depth);
    }));
  }

  field(name, schema, place, text, depth = INNER_DEPTH) {
    const values = schema.enum ? `One of ${schema.enum.map((one) => `\`${one}\``).join(", ")}.` : "";
    const examples = (schema.examples ?? []).map((one) => `\`${one}\``).join(", ");
    const extra = [values, examples && `Such as ${examples}.`].filter(Boolean).join(" ");
    return make("div", { class: "field" },
      make("dt", {}, name ? make("code", {}, name) : "", make("span", { class: "type" }, this.type(schema)),
        place ? make("span", { class: "place" }, place) : ""),
      make("dd", {}, told([text, extra].filter(Boolean).join(" ")), ...this.inner(schema, depth)));
  }

  content(title, content = {}) {
    return Object.entries(content).flatMap(([media, { schema }]) => [
      make("h3", {}, `${title}: `, make("code", {}, media)),
      make("dl", {}, this.field("", schema, "", "")),
    ]);
  }

  example(verb, path, operation) {
    const origin = location.origin + (this.described.servers[0].url.replace(/\/$/, ""));
    const place = path.replace(/\{(\w+)\}/g, (_, name) => name.toUpperCase());
    const words = verb === "get" ? ["curl"] : ["curl", "-X", verb.toUpperCase()];
    const sample = operation.operationId === "CreateJobPlain"
      ? '{"name": "report", "cron": "0 9 * * *", "callback_url": "https://example.com/hook"}' : "{}";
    const body = operation.requestBody ? ` \\\n  --json '${sample}'` : "";
    return make("pre", {}, make("code", {}, `${words.join(" ")} '${origin}${place}'${body}`));
  }

  operation(path, verb, operation) {
    const made = make("div", { class: "body" });
    const details = make("details", {},
      make("summary", {}, make("span", { class: `verb ${verb}` }, verb.toUpperCase()),
        make("span", { class: "path" }, path), make("span", { class: "summary" }, operation.summary)),
      made);
    details.addEventListener("toggle", () => {
      if (!details.open || made.children.length) return;
      made.append(told(operation.description), this.example(verb, path, operation));
      if (operation.parameters.length) {
        made.append(make("h3", {}, "Parameters"), make("dl", {}, ...operation.parameters.map(
          (one) => this.field(one.name, one.schema, one.in, one.description))));
      }
      made.append(...this.content("Body", operation.requestBody?.content));
      for (const [status, answer] of Object.entries(operation.responses)) {
        const found = this.resolve(answer);
        made.append(...this.content(status === "default" ? "Refusal" : status, found.content));
      }
    });
    return make("article", { id: operation.operationId }, details);
  }

  *operations() {
    for (const [path, verbs] of Object.entries(this.described.paths)) {
      for (const verb of VERBS) if (verbs[verb]) yield [path, verb, verbs[verb]];
    }
  }
}

function open(id) {
  const details = id ? at(id)?.querySelector("details") : undefined;
  if (details) details.open = true;
  at(id)?.scrollIntoView();
}

function show(described) {
  const reference = new Reference(described);
  at("version").textContent = described.info.version;
  const found = [];
  const shown = [make("section", {}, told(described.info.description))];
  for (const tag of described.tags) {
    const section = make("section", {}, make("h2", { id: `tag-${tag.name}` }, spaced(tag.name)), told(tag.description));
    const heading = make("h2", {}, spaced(tag.name));
    at("contents").append(heading);
    const links = [];
    for (const [path, verb, operation] of reference.operations()) {
      if (operation.tags[0] !== tag.name) continue;
      const article = reference.operation(path, verb, operation);
      const link = make("a", { href: `#${operation.operationId}` }, operation.operationId);
      link.addEventListener("click", () => open(operation.operationId));
      section.append(article);
      links.push(link);
      const words = `${verb} ${path} ${operation.operationId} ${operation.description}`.toLowerCase();
      found.push({ words, article, link, section, heading });
    }
    at("contents").append(...links);
    shown.push(section);
  }
  at("calls").replaceChildren(...shown);
  filter(found);
  open(decodeURIComponent(location.hash.slice(1)));
}

function filter(found) {
  const input = at("find");
  input.value = new URLSearchParams(location.search).get("find") ?? "";
  const look = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const any = new Set();
    for (const one of found) {
      const is = words.every((word) => one.words.includes(word));
      one.article.hidden = one.link.hidden = !is;
      if (is) any.add(one.section);
    }
    for (const one of found) one.section.hidden = one.heading.hidden = !any.has(one.section);
    const query = input.value ? `?find=${encodeURIComponent(input.value)}` : location.pathname;
    history.replaceState(null, "", query + location.hash);
  };
  input.addEventListener("input", look);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    }
  });
  look();
}

try {
  const answer = await fetch(document.body.dataset.description);
  if (!answer.ok) throw new Error(`it answered ${answer.status}`);
  show(await answer.json());
} catch (error) {
  at("state").textContent = `The description could not be read: ${error.message}. Load the page again.`;
}
