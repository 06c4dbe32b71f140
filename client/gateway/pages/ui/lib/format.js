// Numbers and words of the API, for people.
const groups = new Intl.NumberFormat("en-US");
export const number = (value) => groups.format(Number(value ?? 0));
export const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

export function bytes(size) {
  if (size < 1_024) return `${size} B`;
  if (size < 1_048_576) return `${(size / 1_024).toFixed(1)} KiB`;
  return `${(size / 1_048_576).toFixed(1)} MiB`;
}

// Signs that are not seen, or that turn the text around them, so that one name looks like another.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;
export const visible = (text) => text.replace(UNSEEN, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);

export const many = (count, one, more = `${one}s`) => `${number(count)} ${Number(count) === 1 ? one : more}`;

// "RUN_STATE_SUCCEEDED" without its prefix, as the API has enums: "SUCCEEDED".
const PREFIXES = /^(RUN_STATE|STATE|OUTCOME|CAUSE|PRIORITY|RULE|KIND|END|ROLE|DELIVERY|JOIN|CONDITION|EVENT_KIND|VERDICT|CHANGE|MODE|GAP_RULE|FOLD_RULE|POLICY)_/;
export const plain = (name = "") => name.replace(PREFIXES, "");
// And in words: "SKIPPED_MANUALLY" as "skipped manually".
export const words = (name = "") => plain(name).toLowerCase().replaceAll("_", " ");

export function shortened(id, most = 28) {
  if (id.length <= most) return id;
  const half = Math.floor((most - 1) / 2);
  return `${id.slice(0, half)}…${id.slice(-half)}`;
}

export function median(values) {
  if (!values.length) return undefined;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

// Bytes as the API sends them, as text; what is no text says so.
export function fromBase64(text = "") {
  const raw = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(raw), size: raw.length };
  } catch {
    return { text: null, size: raw.length }; // Bytes that are no text.
  }
}

export function toBase64(text) {
  const raw = new TextEncoder().encode(text);
  let held = "";
  for (let at = 0; at < raw.length; at += 8_192) held += String.fromCharCode(...raw.subarray(at, at + 8_192));
  return btoa(held);
}

// A payload for a reader: JSON is set out in lines.
export function payloadText(payload) {
  if (!payload) return { text: "", note: "none" };
  if (payload.hidden) return { text: "", note: "hidden: your token may not see payloads" };
  const { text, size } = fromBase64(payload.data);
  if (text === null) return { text: "", note: `${bytes(size)} that are no text (${payload.contentType || "no type said"})` };
  try {
    return { text: JSON.stringify(JSON.parse(text), null, 2), note: "" };
  } catch {
    return { text, note: "" }; // Not JSON: as it is.
  }
}
