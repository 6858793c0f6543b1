"""A PRM for search-and-learn: return `PathFinder(config)` from its `load_prm`; `prm_path` is a model or an address."""

from pathfinder.adapters.search_and_learn import PathFinder

__all__ = ["PathFinder"]
