"""What Prometheus would have seen of a real cluster: scrapes of its nodes, shown to promtool.

A scrape comes each eighth of a second and is shown as if it came each 15 s, so five minutes pass
in some three seconds. Instants are shown as if the film began at 0, where promtool begins. At the
end what was seen last may be held for hours.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ..e2e.processes import Cluster, fetch, until
from .test_rules import RULES
from .tools import DEPLOY, run

STEP_S, SHOWN_S = 0.125, 15
USED = {name for rule in RULES.values() for name in re.findall(r"\w+", str(rule["expr"]))}
INSTANTS = re.compile(r"(?:_timestamp|start_time)_seconds$")
FIRED = re.compile(r'\{alertname="(\w+)"\}')
MISSING = "_"
SHOWS_S = 20.0
ENDLESS = 1e300  # In place of the infinite, which promtool does not read.


class Film:
    """Scrapes a cluster while minutes pass; between them none do."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.frames = 0
        # By series, what was seen in each frame.
        self._seen: dict[str, list[str]] = {}
        self._began = time.time()

    async def minutes(self, count: float) -> None:
        """Let so many minutes pass, of those that are shown."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        for _ in range(round(count * 60 / SHOWN_S)):
            texts = await asyncio.gather(*(self._scrape(name) for name in self.running.nodes))
            for name, text in zip(self.running.nodes, texts, strict=True):
                self._take(name, text)
            self.frames += 1
            # However busy the machine is, a frame is one.
            at = max(at + STEP_S, loop.time())
            await asyncio.sleep(at - loop.time())

    async def shows(self, metric: str, reached: Callable[[float], bool]) -> None:
        """Wait until a node shows such a figure; no minutes pass meanwhile."""

        async def shown() -> bool:
            texts = await asyncio.gather(*(self._scrape(name) for name in self.running.nodes))
            families = (one for text in texts for one in text_string_to_metric_families(text or ""))
            samples = (sample for family in families for sample in family.samples)
            return any(one.name == metric and reached(one.value) for one in samples)

        await until(shown, SHOWS_S)

    async def _scrape(self, name: str) -> str | None:
        node = self.running.nodes[name]
        if not node.alive or node.state == "T":
            return None
        with suppress(OSError):
            return (await fetch(self.running.http(name), "/metrics"))[1]
        return None

    def _take(self, name: str, text: str | None) -> None:
        self._add("up", {}, name, "1" if text is not None else "0")
        for family in text_string_to_metric_families(text or ""):
            for sample in family.samples:
                if sample.name in USED:
                    value = sample.value
                    if INSTANTS.search(sample.name) and value:
                        # 1: what was before the film is no 0, which means never.
                        value = max(1.0, value - self._began) if "start" not in sample.name else 1.0
                    self._add(sample.name, sample.labels, name, repr(min(value, ENDLESS)))

    def _add(self, metric: str, labels: dict[str, str], instance: str, value: str) -> None:
        whole = {"job": "raftsched", "cluster": "test", "instance": instance} | labels
        shown = ",".join(f'{key}="{text}"' for key, text in sorted(whole.items()))
        row = self._seen.setdefault(f"{metric}{{{shown}}}", [])
        row += [MISSING] * (self.frames - len(row))
        row.append(value)

    def fired(self, folder: Path, promtool: str, hold_minutes: float = 0) -> set[str]:
        """The alerts that fire at some time; what was seen last is held for so long at the end."""
        held = round(hold_minutes * 60 / SHOWN_S)
        frames = self.frames
        rows = []
        for series, seen in self._seen.items():
            row = [*seen, *[MISSING] * (frames - len(seen))][:frames]
            row.append(f"{row[-1]}x{held}")
            rows.append(f"- {{series: '{series}', values: '{' '.join(row)}'}}")
        minutes = (frames + held) * SHOWN_S // 60 + 1
        ever = f'max_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])'
        query = f"count by (alertname) ({ever})"
        text = (
            f"rule_files: ['{DEPLOY / 'prometheus' / 'rules.yaml'}']\n"
            f"evaluation_interval: {SHOWN_S}s\ntests:\n- interval: {SHOWN_S}s\n"
            "  input_series:\n"
            + "".join(f"  {row}\n" for row in rows)
            + f"  promql_expr_test:\n  - expr: '{query}'\n"
            f"    eval_time: {(frames + held) * SHOWN_S}s\n    exp_samples: []\n"
        )
        file = folder / f"film-{frames}.yaml"
        file.write_text(text)
        answer = run(promtool, "test", "rules", file)
        assert "got:" in answer.stdout or answer.returncode == 0, answer.stdout
        return set(FIRED.findall(answer.stdout))
