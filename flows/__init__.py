"""Running the pipeline: the stage graph, DVC, Prefect, and the ``pathfinder`` command.

Nothing here reports to anybody: the switches below must stand before the first import of what they switch off.
"""

from __future__ import annotations

import os

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
# The flow prints its stages' lines itself; Prefect's console would repeat them.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "ERROR")
