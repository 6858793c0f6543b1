"""Deployments: prefect.yaml as ``python -m flows.team.deploy`` adjusts it here, their flows, and their records."""
