// A question in the page before something is done, and doing it: one thing, or all that a filter
// fits, step by step. What cannot be undone names what it is about and is asked with its count.
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { post } from "../lib/api.js";
import { many, number } from "../lib/format.js";
import { together } from "../lib/picked.js";
import { namespace } from "../lib/route.js";
import { Button } from "./bits.js";
import { Failed } from "./notes.js";

// What is being asked about what a list shows: gone when that changes, since what stands below the
// question would not be what the answer is about. `about` is the filter, and whatever else chooses.
export function useAsking(...about) {
  const key = JSON.stringify([namespace(), ...about]);
  const [held, setHeld] = useState(null);
  return [held?.key === key ? held.value : null, (value) => setHeld({ key, value })];
}

// The keys go to a question when it is asked, or to its first field: Tab to its buttons, Escape away
// from it; then they are where they were.
export function useKeys(first = (frame) => frame) {
  const frame = useRef(null);
  useEffect(() => {
    const [own, before] = [frame.current, document.activeElement];
    first(own)?.focus();
    return () => own.contains(document.activeElement) && before?.isConnected && before.focus();
  }, []);
  return frame;
}

// `act` is awaited; what it refuses with is shown here, where it was asked for.
export function Ask({ title, children, yes, kind = "", act, close, ready = true }) {
  const [state, setState] = useState({ busy: false, error: null });
  const frame = useKeys((own) => own.querySelector("input, select, textarea, button"));
  useEffect(() => frame.current.scrollIntoView({ block: "nearest" }), []);
  const run = async (event) => {
    event.preventDefault();
    if (state.busy) return;
    setState({ busy: true, error: null });
    try {
      await act();
      close();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<form class="ask ${kind}" ref=${frame} onSubmit=${run} onKeyDown=${(event) => event.key === "Escape" && close()} aria-label=${title}>
    <h2>${title}</h2>
    ${children}
    ${state.error ? html`<${Failed} error=${state.error} />` : ""}
    <div class="bar">
      <${Button} type="submit" kind="main ${kind}" disabled=${state.busy || !ready}>${state.busy ? "Working…" : yes}</${Button}>
      <${Button} onClick=${close}>Not now</${Button}>
    </div>
  </form>`;
}

// Steps of one bulk change; so many at most, then it says that it stopped.
const STEPS_MAX = 10_000;
const FAULTS_MAX = 100;

// Do the same to all that fit any of some filters, by ChangeJobs, ChangeRuns and calls like them. The
// count is asked first (`validateOnly`), and what was refused is listed. `body` does not change which.
export function AskAll({ path, filters, change, title, what, yes, kind = "", body = {}, close, done, children }) {
  const [state, setState] = useState({ plan: null, error: null, changed: 0, failures: [], failed: 0, stage: "counting" });
  const stop = useRef(false);
  const frame = useKeys();
  const whole = { namespace: namespace(), ...(change ? { change } : {}), ...body };
  useEffect(() => {
    Promise.all(filters.map((filter) => post(path, { ...whole, filter, validateOnly: true })))
      .then((plans) => setState((before) => ({ ...before, plan: together(plans), stage: "asked" })))
      .catch((error) => setState((before) => ({ ...before, error, stage: "failed" })));
    return () => { stop.current = true; };
  }, [path, filters.join(), change]);

  const run = async () => {
    let [token, changed, failed, failures] = ["", 0, 0, []];
    const rest = [...filters];
    setState((before) => ({ ...before, stage: "running" }));
    try {
      for (let step = 0; step < STEPS_MAX && rest.length && !stop.current; step += 1) {
        const answer = await post(path, { ...whole, filter: rest[0], pageToken: token });
        changed += Number(answer.changed ?? 0);
        failed += Number(answer.failed ?? 0);
        failures = [...failures, ...(answer.failures ?? [])].slice(0, FAULTS_MAX);
        token = answer.nextPageToken ?? "";
        setState((before) => ({ ...before, changed, failed, failures }));
        if (!token) rest.shift();
      }
      setState((before) => ({ ...before, stage: rest.length ? "stopped" : "done" }));
      done?.();
      if (!rest.length && !failed) close();
    } catch (error) {
      setState((before) => ({ ...before, error, stage: "failed" }));
    }
  };

  const { plan, stage } = state;
  const count = plan ? `${plan.matchedIsExact ? "" : "at least "}${many(plan.matched ?? 0, what)}` : "…";
  return html`<div class="ask ${kind}" role="group" tabindex="-1" ref=${frame} aria-label=${title} onKeyDown=${(event) => event.key === "Escape" && close()}>
    <h2>${title}: ${count}</h2>
    ${children}
    ${plan?.sample?.length ? html`<ul>${plan.sample.map((name) => html`<li><span class="tag">${name}</span></li>`)}${Number(plan.matched) > plan.sample.length ? html`<li class="soft">and more</li>` : ""}</ul>` : ""}
    ${plan && Number(plan.failed) ? html`<p class="is-bad">${many(plan.failed, what)} of the first step would be refused: ${plan.failures?.[0]?.message}</p>` : ""}
    ${stage === "running" || stage === "done" || stage === "stopped" ? html`<p role="status">${number(state.changed)} done${state.failed ? `, ${number(state.failed)} refused` : ""}${stage === "running" ? "…" : "."}</p>` : ""}
    ${state.failures.length ? html`<ul class="lines">${state.failures.map((one) => html`<li><strong>${one.name}</strong><span class="grow">${one.message}</span></li>`)}</ul>` : ""}
    ${state.error ? html`<${Failed} error=${state.error} />` : ""}
    <div class="bar">
      ${stage === "asked" ? html`<${Button} kind="main ${kind}" disabled=${!Number(plan.matched)} onClick=${run}>${yes} ${count}</${Button}>` : ""}
      <${Button} onClick=${close}>${stage === "asked" || stage === "counting" ? "Not now" : stage === "running" ? "Stop" : "Close"}</${Button}>
    </div>
  </div>`;
}

const AT_ONCE = 4;
const SHOWN_MAX = 20;

// Do one call for each of what was picked, some at a time, where no filter can name them. `act(id)`
// is awaited; those that are refused are listed with the reason.
export function AskEach({ ids, act, title, what, yes, kind = "", close, done, children }) {
  const [state, setState] = useState({ stage: "asked", changed: 0, failures: [] });
  const stop = useRef(false);
  const frame = useKeys();
  useEffect(() => () => { stop.current = true; }, []);
  const run = async () => {
    const rest = [...ids];
    const failures = [];
    let changed = 0;
    setState({ stage: "running", changed, failures });
    const one = async () => {
      while (rest.length && !stop.current) {
        const id = rest.shift();
        try {
          await act(id);
          changed += 1;
        } catch (error) {
          failures.push({ name: id, message: error.message });
        }
        setState({ stage: "running", changed, failures: [...failures] });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
    setState({ stage: "done", changed, failures });
    done?.();
    if (!failures.length) close();
  };
  const count = many(ids.length, what);
  return html`<div class="ask ${kind}" role="group" tabindex="-1" ref=${frame} aria-label=${title} onKeyDown=${(event) => event.key === "Escape" && close()}>
    <h2>${title}: ${count}</h2>
    ${children}
    <ul>${ids.slice(0, SHOWN_MAX).map((id) => html`<li><span class="tag">${id}</span></li>`)}${ids.length > SHOWN_MAX ? html`<li class="soft">and more</li>` : ""}</ul>
    ${state.stage === "asked" ? "" : html`<p role="status">${number(state.changed)} done${state.failures.length ? `, ${number(state.failures.length)} refused` : ""}${state.stage === "running" ? "…" : "."}</p>`}
    ${state.failures.length ? html`<ul class="lines">${state.failures.slice(0, FAULTS_MAX).map((one) => html`<li><strong>${one.name}</strong><span class="grow">${one.message}</span></li>`)}</ul>` : ""}
    <div class="bar">
      ${state.stage === "asked" ? html`<${Button} kind="main ${kind}" onClick=${run}>${yes} ${count}</${Button}>` : ""}
      <${Button} onClick=${close}>${state.stage === "asked" ? "Not now" : state.stage === "running" ? "Stop" : "Close"}</${Button}>
    </div>
  </div>`;
}
