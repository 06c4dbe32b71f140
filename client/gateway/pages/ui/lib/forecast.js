// What is due in the time to come. The leader keeps a count, since it knows the workers and so what
// their slots can carry; while one goes on it answers with what was counted so far, and is asked
// again soon.
import { read } from "./api.js";
import { useEffect } from "./dom.js";
import { useAsked, useEvery } from "./load.js";
import { namespace } from "./route.js";
import { ms } from "./time.js";

const MAX_AGE = "600s";
const SOON_MS = 2_000;
// No count takes longer; one that is not whole then was too much.
const COUNT_MS = 60_000;

export function useForecast(aheadS, key, every) {
  const ask = (signal) => (aheadS > 0 ? read("/v1/forecast", { namespace: namespace(), ahead: `${aheadS}s`, maxAge: MAX_AGE }, { signal }) : {});
  const asked = useAsked(ask, key);
  useEvery(asked.soon, every);
  useEffect(() => {
    if (!asked.data?.partial || Date.now() - ms(asked.data.countedTime) > COUNT_MS) return;
    const timer = setTimeout(asked.soon, SOON_MS);
    return () => clearTimeout(timer);
  }, [asked.data]);
  return asked;
}
