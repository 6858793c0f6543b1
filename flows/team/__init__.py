"""A team on several machines: deployments, pools, notices. ``flows`` does not import it."""

HOOKS = {
    "places": "flows.team.pools.away:Away",
    "tell": "flows.team.notices.hooks:tell",
    "report_killed": "flows.team.notices.notice:report_killed",
    "state": "flows.team.view:state",
}
"""What a team adds to every run (flows/local/__init__.py); each function is imported when it is needed."""
