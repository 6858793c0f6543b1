"""A team on several machines: deployments, pools, notices. ``flows`` does not import it."""
