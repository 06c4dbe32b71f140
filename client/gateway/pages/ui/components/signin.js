// Signing in by an access token. The gateway keeps it in a cookie that no script can read.
import { ApiError, answers, read } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { useAsked } from "../lib/load.js";
import { prefix } from "../lib/route.js";
import { learnWhoWeAre } from "../lib/session.js";
import { Button, Copy } from "./bits.js";
import { Text } from "./fields.js";
import { Failed } from "./notes.js";

const DEADLINE_MS = 10_000;
const MAKE = "raftsched token create look --role viewer --all-namespaces";

export async function signIn(token) {
  const answer = await fetch(`${prefix}/session`, {
    method: "POST", credentials: "same-origin", signal: AbortSignal.timeout(DEADLINE_MS),
    headers: { "content-type": "application/json" }, body: JSON.stringify({ token }),
  });
  if (answer.ok) return;
  const body = await answer.json().catch(() => ({})); // A proxy may answer with something else.
  throw new ApiError({ status: answer.status, reason: body.error?.details?.[0]?.reason ?? `HTTP_${answer.status}`, message: body.error?.message ?? "The gateway did not take it." });
}

export function SignIn() {
  const asked = useAsked((signal) => read("/session", {}, { local: true, signal }), "session");
  const provider = asked.data?.provider;
  const begin = `${prefix}${provider?.path}?${new URLSearchParams({ to: location.pathname.slice(prefix.length) + location.search })}`;
  const [token, setToken] = useState("");
  const [state, setState] = useState({ busy: false, error: null });
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: null });
    try {
      await signIn(token.trim());
      answers.set({ signedOut: false });
      await learnWhoWeAre();
      location.reload();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<div class="page"><form class="form" onSubmit=${submit}>
    <h1>Sign in</h1>
    ${provider ? html`<a class="button main" href=${begin}>Sign in by ${provider.name}</a><p class="soft">Or by an access token:</p>` : ""}
    <p class="soft">This cluster answers those who show an access token. An admin makes one with</p><p><${Copy} text=${MAKE} kind="mono">${MAKE}</${Copy}></p>
    <${Text} label="Access token" kind="password" mono value=${token} put=${setToken} placeholder="rs_…" help="It is kept in a cookie that only this gateway can read, until you sign out." />
    ${state.error ? html`<${Failed} error=${state.error} />` : ""}
    <div class="bar"><${Button} type="submit" kind="main" disabled=${state.busy || !token.trim()}>${state.busy ? "Asking…" : "Sign in"}</${Button}></div>
  </form></div>`;
}
