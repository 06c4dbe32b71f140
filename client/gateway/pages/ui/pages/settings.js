// Settings: what the cluster keeps beside jobs and runs, each kind on a tab of its own.
import { html } from "../lib/dom.js";
import { link } from "../lib/route.js";
import { can, session } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Empty, Failed, Loading } from "../components/notes.js";
import { Alerts, Audit, Calendars, Identities, Namespaces, Secrets, Tokens } from "../components/settings.js";

// The call that a tab needs, and whether it is about the whole cluster.
const TABS = [
  { name: "namespaces", title: "Namespaces", Part: Namespaces, call: "NamespaceService/GetNamespace" },
  { name: "calendars", title: "Calendars", Part: Calendars, call: "CalendarService/ListCalendars" },
  { name: "alerts", title: "Alerts", Part: Alerts, call: "AlertService/ListAlerts" },
  { name: "tokens", title: "Access tokens", Part: Tokens, call: "AccessService/ListAccessTokens", whole: true },
  { name: "identities", title: "Identity providers", Part: Identities, call: "IdentityService/ListIdentityProviders", whole: true },
  { name: "secrets", title: "Secrets", Part: Secrets, call: "SecretService/ListSecrets" },
  { name: "audit", title: "Audit log", Part: Audit, call: "AccessService/ListAuditRecords" },
];

export function Page({ part = TABS[0].name }) {
  const { caller, problem } = useStore(session);
  const shown = TABS.filter((tab) => can(tab.call, tab.whole ? "" : undefined));
  const at = shown.find((tab) => tab.name === part);
  return html`<div class="page">
    <div class="page-head"><h1>Settings</h1></div>
    <nav class="tabs" aria-label="Settings">${shown.map((tab) => html`<a key=${tab.name} href=${link(tab === TABS[0] ? "/settings" : ["/settings", tab.name])} aria-current=${tab === at ? "page" : undefined}>${tab.title}</a>`)}</nav>
    ${!caller ? (problem ? html`<${Failed} error=${problem} />` : html`<${Loading} />`) : at ? html`<${at.Part} key=${at.name} />` : html`<${Empty} title="Nothing to see here"><p>There is no such part, or your token may not see it.</p></${Empty}>`}
  </div>`;
}
