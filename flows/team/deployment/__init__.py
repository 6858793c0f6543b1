"""What ``python -m flows.team.deploy`` makes of prefect.yaml here, and what it keeps on the Prefect server."""
