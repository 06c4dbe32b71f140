// Small parts: times, lengths, ids, numbers, strips, text that is copied with a click.
import { html, useState } from "../lib/dom.js";
import { shortened } from "../lib/format.js";
import { clockChange } from "../lib/ledger.js";
import { useAsked } from "../lib/load.js";
import { useStore } from "../lib/store.js";
import { clock, clockChanges, clockTime, exact, length, ms, now, relative, zoneChoice, zoneOf } from "../lib/time.js";
import { Shape, stateWord, tone } from "./state.js";

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages over plain HTTP have no clipboard of their own: the older way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// Something that a click copies; says so for a moment.
export function Copy({ text, title, children, kind = "" }) {
  const [done, setDone] = useState(false);
  const copy = async (event) => {
    event.stopPropagation();
    setDone(await copyText(text));
    setTimeout(() => setDone(false), 1_200);
  };
  return html`<button type="button" class="copy ${kind}" title=${title ?? `${text} (click copies it)`} onClick=${copy}>${done ? "copied" : children}</button>`;
}

// An instant. `as`: "relative" (3 min ago), "clock" (09:00:00), or "both". The exact one is in the
// tooltip, and a click copies it. `zone` is the job's own, which counts if that is chosen. What is to
// come `next` and has just passed happens now: a list is as old as that.
const SOON_MS = 20_000;

export function Time({ at, as = "relative", zone = "", empty = "–", next = false }) {
  useStore(clock, ({ tick }) => (as === "clock" ? 0 : tick));
  const choice = useStore(zoneChoice, (one) => one.zone);
  const instant = typeof at === "number" ? at : ms(at);
  if (instant === undefined || Number.isNaN(instant)) return html`<span class="soft">${empty}</span>`;
  const shown = zoneOf(choice, zone);
  const past = now() - instant;
  const words = as !== "relative" ? clockTime(instant, shown) : next && past > 0 ? (past < SOON_MS ? "now" : `late by ${length(past)}`) : relative(instant);
  const whole = exact(instant, shown);
  const own = zone && zone !== shown ? `\n${exact(instant, zone)} ${zone} (the job's)` : "";
  const title = `${whole} ${shown}${own}\n${relative(instant)} · click copies it`;
  return html`<${Copy} text=${new Date(instant).toISOString()} title=${title}><time datetime=${new Date(instant).toISOString()}>${words}</time>${
    as === "both" ? html` <span class="soft">${relative(instant)}</span>` : ""
  }</${Copy}>`;
}

// How long from one instant to another; without the other it goes on.
export function Length({ from, to, value, fine = false }) {
  useStore(clock, ({ tick }) => (to || value !== undefined ? 0 : tick));
  if (value === undefined && !from) return html`<span class="soft">–</span>`;
  const size = value ?? (ms(to) ?? now()) - ms(from);
  return html`<span class="nowrap" title="${size} ms">${length(Math.max(0, size), fine)}</span>`;
}

export const Id = ({ id, most = 28 }) => html`<${Copy} text=${id} kind="mono">${shortened(id, most)}</${Copy}>`;

// The last so many outcomes, oldest first, each a bar whose height and colour say the state.
export function Strip({ states, slots = 20 }) {
  const word = states.length ? `${states.length} last: ${counted(states)}` : "no run has ended yet";
  const none = Math.max(0, slots - states.length);
  return html`<span class="strip" role="img" aria-label=${word} title=${word}>
    ${Array.from({ length: none }, () => html`<i class="none"></i>`)}
    ${states.map((state) => html`<i class="is-${tone(state)}"></i>`)}
  </span>`;
}

export function counted(states) {
  const counts = new Map();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${stateWord(state)}`).join(", ");
}

export const Meter = ({ part, whole, title }) => html`<div class="meter" title=${title}><i ref=${(bar) => bar && (bar.style.width = `${whole ? Math.min(100, (100 * part) / whole) : 0}%`)}></i></div>`;

export const Labels = ({ labels = {} }) => html`${Object.entries(labels).map(([name, value]) => html`<span class="tag">${name}=${value}</span> `)}`;

// A link that looks and works like a button.
export const Button = ({ onClick, kind = "", children, disabled, title, pressed, type = "button", label }) => html`<button
  type=${type} class="button ${kind}" disabled=${disabled} title=${title} aria-pressed=${pressed} aria-label=${label} onClick=${onClick}>${children}</button>`;

function oursWords(theirs, own) {
  const day = own.slice(0, own.lastIndexOf(" ") + 1);
  return day && theirs.startsWith(day) ? own.slice(day.length) : own;
}

// The next times of a job, in its own zone, with ours beside it where that is another one. Where its
// clocks change it says so, as it does for a time that is left out or is not where one expects it.
// The day is left out where both have the same. `fits` says which are shown.
export function Nexts({ occurrences, zone: own, fits = () => true }) {
  const ours = zoneOf(useStore(zoneChoice, (one) => one.zone), own);
  const zone = own || ours;
  return html`<ol class="nexts">${occurrences.map((one, at) => {
    if (!fits(one)) return "";
    const instant = ms(one.dueTime ?? one.scheduledTime);
    const change = clockChange(occurrences[at - 1], one);
    return html`<li class=${one.excluded ? "soft" : ""}>
      <span title=${`${exact(instant, zone)} ${zone}`}>${clockTime(instant, zone)}</span>
      ${exact(instant, zone) === exact(instant, ours) ? "" : html`<span class="soft">${oursWords(clockTime(instant, zone), clockTime(instant, ours))} ${ours}</span>`}
      <span class="soft"><${Time} at=${instant} /></span>
      ${one.excluded ? html`<span class="state"><${Shape} of="dash" tone="off" />left out</span>` : ""}
      ${change ? html`<span class="state is-warn"><${Shape} of="triangle" tone="warn" />clocks change: ${change}</span>` : ""}
      ${one.note ? html`<span class="is-warn">${one.note}</span>` : ""}</li>`;
  })}</ol>`;
}

const AROUND = 4;
const FAR_MS = 8 * 86_400_000;

// What happens on the days on which the clocks are changed, in spring and in autumn; on the first
// time after, where nothing happens on those. `ask({fromTime, count}, signal)` gives the preview.
export function AtClockChanges({ occurrences, zone, ask, about }) {
  const times = occurrences.map((one) => ms(one.dueTime ?? one.scheduledTime));
  const gap = Math.min(FAR_MS, ...times.slice(1).map((time, at) => time - times[at]).filter((size) => size > 0));
  const regular = times.length > 1 && gap < FAR_MS;
  const asked = useAsked(async (signal) => {
    const found = regular ? clockChanges(zone || "UTC") : [];
    return Promise.all(found.map(async (at) => {
      const answer = await ask({ fromTime: new Date(at - 1.5 * gap).toISOString(), count: AROUND }, signal);
      return { at, all: answer.occurrences ?? [] };
    }));
  }, JSON.stringify([about, zone, gap, regular]));
  const dayOf = (at) => exact(at, zone, false).slice(0, 14);
  const changes = (asked.data ?? []).filter((one) => one.all.length);
  if (!changes.length) return "";
  return html`<section class="card" aria-label="When the clocks change"><header><h2>When the clocks change</h2></header>${changes.map(({ at, all }) => {
    const of = (one) => ms(one.dueTime ?? one.scheduledTime);
    const then = all.filter((one) => dayOf(of(one)) === dayOf(at));
    const shown = then.length ? then : all.filter((one) => of(one) >= at).slice(0, 1);
    return html`<h3 key=${at}>${dayOf(at)}</h3><${Nexts} occurrences=${all} zone=${zone} fits=${(one) => shown.includes(one)} />`;
  })}</section>`;
}
