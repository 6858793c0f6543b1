"""Running the pipeline: the stage graph, DVC, Prefect, and the ``pathfinder`` command.

The flow sends no usage data, and asks a server on this machine without a proxy, as child processes do. These switches
must be set before the first import of the packages that they configure.
"""

from __future__ import annotations

import os

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
# The flow prints the output and the errors of its stages itself; Prefect's console would repeat them with tracebacks.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
# "*" is every host, and some packages understand it only without other hosts.
if (_direct := os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").strip() != "*":
    _hosts = dict.fromkeys([*filter(None, _direct.split(",")), "127.0.0.1", "localhost"])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(_hosts)
