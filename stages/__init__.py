"""The pipeline: one module per stage of dvc.yaml. The library is ``pathfinder``."""
