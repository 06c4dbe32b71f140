// A list as pages of the API, kept alive by events. All of its state is in the address: `q` (the
// filter), `order`, `at` (where this page begins), `n` (how many rows).
import { useEffect, useMemo, useRef, useState } from "./dom.js";
import { useAsked, useLeaderBack } from "./load.js";
import { useLive } from "./live.js";
import { namespace, setParams, useParams } from "./route.js";

export const PAGE_SIZES = [50, 100, 200, 500];
const FRESH_MS = 1_300;
const COUNT_MS = 30_000;
// Scrolled further than this, new rows wait behind a button.
const SCROLLED = 160;

// `ask({filter, pageSize, pageToken, orderBy}, signal)` gives {rows, nextPageToken, ageMs}; where a
// list `counts`, it is also asked `{filter, pageSize: 1, withCount}` and gives {count, countIsExact}.
// `idOf(row)`. `change(event)` is what an event makes of a row: {id, row}; {id}
// (ask again); {id, known: true} (ask again if it is listed); or null where it does not concern this
// list.
export function useList({ name, ask, idOf, change, order = "", filter = (q) => q, counts = false }) {
  const params = useParams();
  const size = PAGE_SIZES.includes(Number(params.n)) ? Number(params.n) : PAGE_SIZES[0];
  const [q, at, orderBy] = [params.q ?? "", params.at ?? "", params.order ?? order];
  const key = JSON.stringify([name, namespace(), q, at, orderBy, size]);
  const asked = useAsked((signal) => ask({ filter: filter(q), pageSize: size, pageToken: at, orderBy }, signal), key);
  const known = counts ? countOf(asked.data, at) : {};
  const found = useCount(known ? null : ask, filter(q), JSON.stringify([name, namespace(), q]), asked.data);
  const { count, exact } = known ?? found;
  const [held, setHeld] = useState({ key, rows: null });
  const [fresh, setFresh] = useState(new Set());
  const timers = useRef(new Set());
  useEffect(() => () => timers.current.forEach(clearTimeout), []);

  const rows = held.key === key ? held.rows : null;
  const coming = asked.data?.rows ?? null;
  // What came replaces what is seen, unless rows that nobody has asked for would push others away.
  const waiting = useMemo(() => {
    if (!rows || !coming) return 0;
    const seen = new Set(rows.map(idOf));
    return coming.filter((row) => !seen.has(idOf(row))).length;
  }, [rows, coming]);
  const holds = waiting > 0 && scrollY > SCROLLED;
  useEffect(() => {
    if (!coming || holds) return;
    if (rows) mark(changedOf(rows, coming, idOf));
    setHeld({ key, rows: coming });
  }, [coming, key]);

  function mark(ids) {
    if (!ids.length) return;
    setFresh((before) => new Set([...before, ...ids]));
    const timer = setTimeout(() => {
      timers.current.delete(timer);
      setFresh((before) => new Set([...before].filter((id) => !ids.includes(id))));
    }, FRESH_MS);
    timers.current.add(timer);
  }

  useLive((message) => {
    if (!message.events) return asked.soon();
    const changes = message.events.map(change).filter(Boolean);
    if (!changes.length) return;
    const known = new Map(changes.map((one) => [one.id, one]));
    const seen = new Set((rows ?? []).map(idOf));
    const swap = (list) => list.map((row) => known.get(idOf(row))?.row ?? row);
    const touched = [...known.keys()].filter((id) => seen.has(id) && known.get(id).row);
    if (touched.length) {
      setHeld((before) => (before.key === key && before.rows ? { key, rows: swap(before.rows) } : before));
      mark(touched);
    }
    if (changes.some((one) => (seen.has(one.id) ? !one.row : !one.known))) asked.soon();
  }, namespace());
  useLeaderBack(asked.soon);

  return {
    rows: rows ?? coming, fresh, size, q, orderBy, at, error: asked.error, loading: asked.loading, again: asked.again, soon: asked.soon,
    ageMs: asked.data?.ageMs, count, exact,
    next: asked.data?.nextPageToken, waiting: holds ? waiting : 0,
    show: () => (setHeld({ key, rows: coming }), scrollTo({ top: 0 })),
    older: () => (setParams({ at: asked.data.nextPageToken }), scrollTo({ top: 0 })),
    first: () => setParams({ at: "" }),
    setFilter: (text) => setParams({ q: text, at: "" }),
    setOrder: (text) => setParams({ order: text === order ? "" : text, at: "" }),
    setSize: (count) => setParams({ n: count === PAGE_SIZES[0] ? "" : count, at: "" }),
  };
}

// How many fit, where the page says that itself: all that there are, or none as far as it looked, which
// a count would look at once more. null: it is to be asked for.
export function countOf(page, at) {
  if (!page || (!page.rows.length && page.nextPageToken)) return {};
  return at || page.nextPageToken ? null : { count: page.rows.length, exact: true };
}

// How many fit in all. To count is to look at many more than a page, so it is asked for when the page
// stands, and now and then when the page has changed.
function useCount(ask, filter, key, page) {
  const [found, setFound] = useState({ key: "" });
  const last = useRef({ key: "", time: 0 });
  useEffect(() => {
    if (!ask || (last.current.key === key && Date.now() - last.current.time < COUNT_MS)) return;
    last.current = { key, time: Date.now() };
    ask({ filter, pageSize: 1, withCount: true }).then(
      ({ count, countIsExact }) => last.current.key === key && setFound({ key, count, exact: countIsExact }),
      () => {}, // Then the list stands without it, and it is asked for again later.
    );
  }, [key, page]);
  return found.key === key ? found : {};
}

function changedOf(before, after, idOf) {
  const seen = new Map(before.map((row) => [idOf(row), JSON.stringify(row)]));
  return after.filter((row) => seen.has(idOf(row)) ? seen.get(idOf(row)) !== JSON.stringify(row) : before.length > 0).map(idOf);
}
