// How the cluster did, from the ring that every node keeps: asked for in full once, then from the
// newest stretch on, which grows as long as it lasts.
import { read } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { useLeaderBack } from "./load.js";
import { durationMs, ms } from "./time.js";

export const SPANS = {
  "": { word: "15 min", step: "STEP_SECOND", size: 1_000, kept: 900, every: 1_000 },
  "3h": { word: "3 h", step: "STEP_TEN_SECONDS", size: 10_000, kept: 1_080, every: 5_000 },
  "24h": { word: "24 h", step: "STEP_MINUTE", size: 60_000, kept: 1_440, every: 20_000 },
};
const DEADLINE_MS = 4_000;

// The old with the new: stretches of the same time are replaced, and only so many are kept.
export function joined(old, fresh, kept) {
  if (!fresh.length) return old;
  const from = fresh[0].time;
  return [...old.filter((one) => one.time < from), ...fresh].slice(-kept);
}

const figure = (one) => ({
  time: ms(one.time), leader: one.leader ?? "", counted: durationMs(one.counted) ?? 0,
  fired: one.fired ?? 0, started: one.started ?? 0, ended: one.ended ?? 0, failed: one.failed ?? 0,
  p50: durationMs(one.latenessP50) ?? null, p99: durationMs(one.latenessP99) ?? null,
  high: Number(one.readyHigh ?? 0), medium: Number(one.readyMedium ?? 0), low: Number(one.readyLow ?? 0), oldest: durationMs(one.oldestReady) ?? 0,
  workers: Number(one.workers ?? 0), slots: Number(one.slots ?? 0), busy: Number(one.busy ?? 0),
});

// {figures, error}: oldest first.
export function useFigures(span) {
  const { step, kept, every } = SPANS[span] ?? SPANS[""];
  const [state, setState] = useState({ figures: [], error: null });
  const [turn, setTurn] = useState(0);
  useLeaderBack(() => setTurn((before) => before + 1));
  useEffect(() => {
    let gone = false;
    let all = [];
    let timer = null;
    setState((before) => ({ ...before, error: null }));
    const ask = async () => {
      if (!document.hidden) {
        try {
          const last = all.at(-1)?.time;
          const found = await read("/v1/cluster/figures", { step, sinceTime: last ? new Date(last).toISOString() : undefined }, { deadline: DEADLINE_MS, local: true });
          all = joined(all, (found.figures ?? []).map(figure), kept);
          if (!gone) setState({ figures: all, error: null });
        } catch (error) {
          if (!gone) setState((before) => ({ ...before, error }));
        }
      }
      if (!gone) timer = setTimeout(ask, every);
    };
    ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [step, turn]);
  return state;
}

// Of these the largest is kept where stretches are put together, of all others the mean.
const LARGEST = new Set(["p99", "oldest", "high", "medium", "low", "busy", "slots", "workers"]);

// In so few stretches that a plot can show each: some together, by their place in time, so that a
// new one does not shift what is drawn of the others.
export function thinned(figures, size, most) {
  const together = Math.ceil(figures.length / most);
  if (together <= 1) return { figures, size };
  const whole = size * together;
  const made = [...grouped(figures, whole)].map(([place, group]) => {
    const joint = { ...group[0], time: place * whole };
    for (const name of ["fired", "started", "ended", "failed", "p50", ...LARGEST]) {
      const known = group.map((one) => one[name]).filter((value) => value !== null && value !== undefined);
      joint[name] = !known.length ? null : LARGEST.has(name) ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
    }
    return joint;
  });
  return { figures: made, size: whole };
}

function grouped(figures, whole) {
  const groups = new Map();
  for (const one of figures) {
    const place = Math.floor(one.time / whole);
    if (groups.has(place)) groups.get(place).push(one);
    else groups.set(place, [one]);
  }
  return groups;
}

// Columns for a plot: seconds, then each of the named figures; where nothing was counted there is a
// gap.
export function columnsOf(figures, names, size) {
  const times = [];
  const values = names.map(() => []);
  let before = null;
  for (const one of figures) {
    if (before !== null && one.time - before > size * 1.5) {
      times.push((before + size) / 1_000);
      for (const list of values) list.push(null);
    }
    times.push(one.time / 1_000);
    names.forEach((name, at) => values[at].push(one[name]));
    before = one.time;
  }
  return [times, ...values];
}

// The newest stretch that is whole, else the newest.
export const latest = (figures, size) => figures.findLast((one) => one.counted >= size * 0.9) ?? figures.at(-1);
