// States by shape and colour, with their word.
import { html } from "../lib/dom.js";
import { words } from "../lib/format.js";

// Shapes in a box of 12 by 12, so that they look the same in every font.
const SHAPES = {
  dot: html`<circle cx="6" cy="6" r="4.2" fill="currentColor" />`,
  check: html`<path d="M2 6.6 4.8 9.4 10 3" fill="none" stroke="currentColor" stroke-width="2" />`,
  cross: html`<path d="m2.5 2.5 7 7m0-7-7 7" fill="none" stroke="currentColor" stroke-width="2" />`,
  again: html`<path d="M9.8 6A3.9 3.9 0 1 1 8.4 3M8.9.6v2.8H6.1" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  ring: html`<circle cx="6" cy="6" r="3.8" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="3 1.8" />`,
  dash: html`<path d="M2 6h8" stroke="currentColor" stroke-width="2" />`,
  square: html`<rect x="2.2" y="2.2" width="7.6" height="7.6" fill="currentColor" />`,
  triangle: html`<path d="M6 1.5 11 10.5H1Z" fill="currentColor" />`,
  pause: html`<path d="M4 2.2v7.6M8 2.2v7.6" stroke="currentColor" stroke-width="2" />`,
  flag: html`<path d="M3 11V1.6h6.5L7.6 4.3l1.9 2.7H3" fill="none" stroke="currentColor" stroke-width="1.5" />`,
};

// By the name of the state without its prefix: shape, colour, and a word where the name is not one.
const STATES = {
  RUNNING: ["dot", "run"], SUCCEEDED: ["check", "ok"], FAILED: ["cross", "bad"], RETRYING: ["again", "warn"],
  PENDING: ["ring", "wait"], SKIPPED: ["dash", "wait"], CANCELLED: ["square", "off"], WARNING: ["triangle", "warn", "with a warning"],
  ACTIVE: ["dot", "ok"], PAUSED: ["pause", "warn"], FINISHED: ["flag", "wait"], DELETING: ["square", "off"], BROKEN: ["cross", "bad"],
  RAN: ["check", "run", "became a run"], LATE: ["triangle", "warn"], MISSED: ["cross", "bad"], COALESCED: ["dash", "wait"], REPLACED: ["square", "off"],
  SKIPPED_OVERLAP: ["dash", "wait"], SKIPPED_CALENDAR: ["dash", "off"], SKIPPED_MANUALLY: ["dash", "off"],
  SKIPPED_DEADLINE: ["triangle", "warn"], SKIPPED_QUOTA: ["triangle", "warn"], TRIGGERED: ["check", "run"],
  LAPSED: ["cross", "warn"], TIMED_OUT: ["cross", "bad"], RELEASED: ["dash", "wait"], NONE: ["ring", "wait"],
  LEADER: ["dot", "ok"], FOLLOWER: ["ring", "ok"], CANDIDATE: ["again", "warn"], LEARNER: ["ring", "run"],
  LIVE: ["dot", "run", "under way"], STUCK: ["triangle", "warn"], WAITING: ["ring", "wait"],
  CANNOT_RUN: ["dash", "off", "cannot run"], NOT_REACHED: ["ring", "wait", "not reached"],
  FIRING: ["triangle", "bad"], QUIET: ["check", "ok"], DRAINING: ["pause", "warn"], CONNECTED: ["dot", "ok"],
};

const bare = (state = "") => state.replace(/^(RUN_STATE|STATE|OUTCOME|END|ROLE)_/, "") || "NONE";
export const tone = (state) => (STATES[bare(state)] ?? STATES.NONE)[1];
// The state of a run as it is shown: a success that warns is one to look at.
export const stateOf = (run) => (run.state === "RUN_STATE_SUCCEEDED" && run.warning ? "WARNING" : run.state);
export const stateWord = (state) => (STATES[bare(state)] ?? [])[2] ?? words(bare(state));

// The shape alone, to be put into a drawing.
export const glyph = (state) => SHAPES[(STATES[bare(state)] ?? STATES.NONE)[0]];

export function Shape({ state, of, tone: colour }) {
  const [shape, own] = of ? [of, colour ?? "wait"] : (STATES[bare(state)] ?? STATES.NONE);
  return html`<svg class="shape is-${colour ?? own}" viewBox="0 0 12 12" aria-hidden="true">${SHAPES[shape]}</svg>`;
}

// The badge; `word` in place of the state's own, `more` behind it. The word has a colour only where
// something is wrong, so that a screen of good news is calm.
export function State({ state, word, more }) {
  const loud = ["bad", "warn"].includes(tone(state)) ? `is-${tone(state)}` : "";
  return html`<span class="state ${loud}"><${Shape} state=${state} />${word ?? stateWord(state)}${more ? html` <span class="soft">${more}</span>` : ""}</span>`;
}
