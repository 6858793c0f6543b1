"""The public names for type checkers and editors; ``__init__.py`` loads them on first use."""

from ground.io import DataError as DataError
from ground.io import TransientError as TransientError
from pathfinder.baselines.opening import open_prm as open_prm
from pathfinder.core.given import read_given as read_given
from pathfinder.core.layouts import split_steps as split_steps
from pathfinder.core.steps import ScoredStep as ScoredStep
from pathfinder.core.steps import Solution as Solution
from pathfinder.core.steps import StepScore as StepScore
from pathfinder.library import PRM as PRM
from pathfinder.prm.results import ScoredSolution as ScoredSolution
from pathfinder.prm.results import UnscoredSolution as UnscoredSolution
