"""What ``python -m flows.deploy`` makes of prefect.yaml for this folder, and what it keeps on the Prefect server."""
