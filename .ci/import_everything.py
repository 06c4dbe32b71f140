"""Import every module of the installed package, and look at what the light ones drag in.

Run by `./dev package` in an environment that holds the wheel and its dependencies, nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys

import raftsched

# A worker's image carries the SDK; it must start without the engine and the consensus library.
LIGHT = {"raftsched.client": ("rocksdict", "pysyncobj"), "raftsched.client.cli": ("grpc",)}
# These want raftsched[otel], and are imported where spans are wanted; the last one wants
# raftsched[http], and is imported when an HTTP job is carried out.
EXTRA = re.compile(
    r"\.(otel_spans|span_queue|call_spans|attempt_spans|request_spans|http_connections)$"
)


def main() -> None:
    names = [module.name for module in pkgutil.walk_packages(raftsched.__path__, "raftsched.")]
    assert len(names) > len(LIGHT), f"the wheel is empty: {names}"
    for name in names:
        if not name.endswith("__main__") and not EXTRA.search(name):
            importlib.import_module(name)
    for name, heavy in LIGHT.items():
        probe = f"import sys, {name}; print(*sorted({{*{heavy!r}}} & {{*sys.modules}}))"
        loaded = subprocess.check_output([sys.executable, "-c", probe], text=True).strip()
        assert not loaded, f"{name} loads {loaded}"
    print(f"{len(names)} modules import; {' and '.join(LIGHT)} stay light")


if __name__ == "__main__":
    main()
