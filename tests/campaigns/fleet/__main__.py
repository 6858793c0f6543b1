"""Print how a team of growing size loads the store and Prefect's server: python -m tests.campaigns.fleet.

One night for each of the sizes, in which everybody asks for a pipeline of so many stages and gets it. The code of the
leases is the project's own, in virtual time; its store and everything else are simulated (model.py has the sources of
the constants). The same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import resource
from collections import Counter
from dataclasses import fields, replace
from statistics import median

from pathfinder.pages.page import markdown_table
from tests.campaigns.fleet.model import Plan, Team

EVENT_MB, RUN_MB, HEARTBEAT_S = 0.005, 0.068, 30
"""The database of Prefect's server grows by so much for an event and for a run (tests/campaigns/fleet/server.py)."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Plan):
        kind = {"action": "store_true"} if field.type == "bool" else {"type": type(field.default)}
        parser.add_argument(f"--{field.name.replace('_', '-')}", default=field.default, **kind)
    parser.add_argument("--times", type=float, nargs="*", default=[1.0], help="sizes: times the workers and people")
    given = vars(parser.parse_args())
    times, plan = given.pop("times"), Plan(**given)
    rows = []
    for size in times:
        team = Team(replace(plan, workers=round(plan.workers * size), people=round(plan.people * size))).night()
        rows.append({"size": f"{size:g}x", **row(team)})
    print(markdown_table(list(rows[0]), [[str(value) for value in found.values()] for found in rows]))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f} CPU seconds")


def row(team: Team) -> dict[str, str]:
    """The figures of one night."""
    span, plan = max(team.finished_s.values()), team.plan
    asked, kinds, seconds, writes = 0, Counter[str](), Counter[int](), Counter[int]()
    for (who, kind, second), number in team.store.counts.items():
        asked += number
        kinds[who] += number
        seconds[second] += number
        writes[second] += number * (kind in ("PUT", "DELETE"))
    megabytes = team.counts["runs"] * RUN_MB + team.busy_s / HEARTBEAT_S * EVENT_MB
    killed = [team.counts[f"{kind} killed"] for kind in ("worker", "person")]
    return {
        "workers, people": f"{plan.workers}, {plan.people}",
        "hours": f"{span / 3600:.1f}",
        "machines, runs killed": "{}, {}".format(*killed),
        "store: requests/s mean, peak": f"{asked / span:.0f}, {max(seconds.values())}",
        "writes/s at the peak": f"{max(writes.values())}",
        "renewals": f"{kinds['renewal'] / asked:.0%}",
        "looks of people": f"{kinds['person'] / asked:.0%}",
        "asked for again after s, median, most": _pair(team.noticed_s),
        "second attempt after s": _pair(team.takeovers_s),
        "twice at once": f"{team.counts['twice']}",
        "workers busy, at work": f"{team.busy_s / span / plan.workers:.0%}, {team.work_s / span / plan.workers:.0%}",
        "Prefect: requests/s": f"{sum(team.prefect.values()) / span:.0f}",
        "in the busiest minute": f"{_minute(team.prefect):.0f}",
        "database, MB": f"{megabytes:.0f}",
    }


def _minute(counts: Counter[int]) -> float:
    """The requests per second in the busiest minute."""
    minutes = Counter[int]()
    for second, number in counts.items():
        minutes[second // 60] += number
    return max(minutes.values()) / 60


def _pair(seconds: list[float]) -> str:
    return f"{median(seconds):.0f}, {max(seconds):.0f}" if seconds else "none"


if __name__ == "__main__":
    main()
