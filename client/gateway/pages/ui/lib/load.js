// Asking for things: once, and again when something happened. What was seen stays until the new is
// there, so nothing jumps.
import { useCallback, useEffect, useRef, useState } from "./dom.js";
import { useLive } from "./live.js";
import { pulse } from "./live.js";
import { namespace } from "./route.js";

// Between two times of asking because of events; longer where the answer itself takes long.
export const AGAIN_MS = 1_500;
const SLOW_FACTOR = 10;
const AGAIN_MAX_MS = 15_000;

// {data, error, loading, again}. `ask(signal)` is called when `key` changes (then what was is
// dropped) and when `again` is called (then it stays until the new one is there).
export function useAsked(ask, key) {
  const [state, setState] = useState({ key, data: null, error: null, loading: true });
  const held = useRef({ turn: 0, took: 0, begun: 0, busy: false, timer: null, abort: null, ask });
  held.current.ask = ask;

  const run = useCallback(async (of) => {
    const mine = held.current;
    mine.abort?.abort();
    mine.abort = new AbortController();
    const { signal } = mine.abort;
    const turn = (mine.turn += 1);
    mine.begun = Date.now();
    mine.busy = true;
    setState((before) => (before.key === of ? { ...before, loading: true } : { key: of, data: null, error: null, loading: true }));
    try {
      const data = await mine.ask(signal);
      if (turn === mine.turn) setState({ key: of, data, error: null, loading: false });
    } catch (error) {
      if (turn === mine.turn && !signal.aborted) setState((before) => ({ ...before, key: of, error, loading: false }));
    }
    if (turn !== mine.turn) return;
    mine.took = Date.now() - mine.begun;
    mine.busy = false;
  }, []);

  useEffect(() => {
    run(key);
    return () => {
      clearTimeout(held.current.timer);
      held.current.timer = null;
      held.current.turn += 1;
      held.current.abort?.abort();
    };
  }, [key]);

  const again = useCallback(() => run(key), [key]);
  // Soon, and once for many events. What is on its way is waited for, not begun anew.
  const soon = useCallback(() => {
    const mine = held.current;
    if (mine.timer) return;
    const look = () => {
      if (mine.busy) return void (mine.timer = setTimeout(look, AGAIN_MS));
      mine.timer = null;
      if (!document.hidden) run(key);
    };
    const wait = Math.min(AGAIN_MAX_MS, Math.max(AGAIN_MS, mine.took * SLOW_FACTOR)) - (Date.now() - mine.begun);
    mine.timer = setTimeout(look, Math.max(50, wait));
  }, [key]);
  const put = useCallback((change) => setState((before) => (before.data ? { ...before, data: change(before.data) } : before)), []);
  // What belongs to another key is not shown for this one.
  const shown = state.key === key ? state : { key, data: null, error: null, loading: true };
  return { ...shown, again, soon, put };
}

// Asked for again when events come that `concerns` is true of, when some were lost, when the page is
// seen again, and when a leader is there again.
export function useLiveAsked(ask, key, concerns = () => true) {
  const asked = useAsked(ask, key);
  useLive((message) => {
    if (!message.events || message.events.some(concerns)) asked.soon();
  }, namespace());
  useLeaderBack(asked.soon);
  return asked;
}

// `act(begins)`: whether that is only this page's beginning, when the feed hears of a leader for the
// first time. What was asked before the feed stood may have changed unseen; what is asked again and
// again anyway need not mind.
export function useLeaderBack(act) {
  const held = useRef(act);
  held.current = act;
  useEffect(() => {
    let was = pulse.get();
    return pulse.watch((is) => {
      const begins = !was.cluster || was.status.is === "connecting";
      const back = (!was.cluster?.leader && is.cluster?.leader) || (was.unreachable && !is.unreachable) || (was.status.is !== "live" && is.status.is === "live");
      was = is;
      if (back) held.current(begins);
    });
  }, []);
}

// Each `every` milliseconds while the page is seen.
export function useEvery(act, every) {
  const held = useRef(act);
  held.current = act;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || held.current(), every);
    return () => clearInterval(timer);
  }, [every]);
}

export function usePolled(ask, key, every) {
  const asked = useAsked(ask, key);
  useEvery(asked.soon, every);
  return asked;
}
