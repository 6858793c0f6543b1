"""The outputs of stages as assets of Prefect."""
