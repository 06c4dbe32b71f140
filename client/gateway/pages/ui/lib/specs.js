// Reading specs of jobs: what a person calls their parts.
import { durationMs, length } from "./time.js";

// Schedules as they are written, where nobody has put them into words yet.
export function written(spec = {}) {
  const all = (spec.schedules ?? []).map((one) => {
    if (one.cron) return one.cron.expression;
    if (one.interval) return `every ${length(durationMs(one.interval.every), true)}`;
    if (one.afterEnd) return `${length(durationMs(one.afterEnd.delay ?? "0s"), true)} after the last run ended`;
    return `once at ${one.once?.time ?? ""}`;
  });
  if ((spec.upstream?.jobs ?? []).length) all.push(`after ${spec.upstream.jobs.map((one) => one.job).join(", ")}`);
  return all.length ? all : ["manually"];
}

// "handler mail", "POST https://…", "gRPC …", "$ tool --flag".
export function action(spec = {}) {
  const kind = spec.action ?? {};
  if (kind.http) return `${kind.http.method || "POST"} ${kind.http.url}`;
  if (kind.grpc) return `gRPC ${kind.grpc.target} ${kind.grpc.method}`;
  if (kind.shell) return `$ ${(kind.shell.argv ?? []).join(" ")}`;
  return kind.handler ?? "";
}

export const queueOf = (spec) => spec?.queue || "default";
export const zoneOfJob = (job) => job?.spec?.timing?.zone || "UTC";
