"""The pipeline: one module per stage of dvc.yaml. The library is ``pathfinder``."""

import gc
import os

from ground.text import errors_without_traceback
from pathfinder.core.kernels import pin_kernels

# Imports make a million objects that are never freed. Searching them for garbage takes a third of a stage's start.
# ``@stage``, at the end of each module, enables the collector again.
gc.disable()
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # pydantic would search all installed packages for plugins

with errors_without_traceback():
    pin_kernels()  # before a stage imports PyTorch
