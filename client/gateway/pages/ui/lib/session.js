// Who we are, and what we may do. What the caller may not do is not offered.
import { answers, read } from "./api.js";
import { namespace } from "./route.js";
import { store } from "./store.js";

const RENEW_MS = 60_000;
// caller: what WhoAmI says; problem: why we do not know.
export const session = store({ caller: null, problem: null });

export async function learnWhoWeAre() {
  try {
    session.set({ caller: await read("/v1/whoami", {}, { local: true }), problem: null });
    answers.set({ signedOut: false });
  } catch (problem) {
    session.set({ problem });
  }
}

// When it is known who we are; refused as WhoAmI was where that was refused.
export function whenKnown() {
  return new Promise((done, fail) => {
    const look = ({ caller, problem }) => (caller ? done(caller) : problem ? fail(problem) : false);
    if (look(session.get()) !== false) return;
    const off = session.watch((held) => look(held) !== false && off());
  });
}

export function startSession() {
  learnWhoWeAre();
  setInterval(() => document.hidden || learnWhoWeAre(), RENEW_MS);
}

// May we make this call ("JobService/PauseJob") in the namespace that is shown?
export function can(call, where = namespace() || "default") {
  const { caller } = session.get();
  if (!caller) return false;
  return (caller.grants ?? []).some((grant) => (!grant.namespace || grant.namespace === where) && (grant.calls ?? []).includes(call));
}

// Namespaces we are bound to; empty: all of them.
export function boundTo() {
  const grants = session.get().caller?.grants ?? [];
  return grants.some((grant) => !grant.namespace) ? [] : grants.map((grant) => grant.namespace);
}
