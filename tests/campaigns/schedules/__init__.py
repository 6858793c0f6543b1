"""Random schedules of a team: two people, three machines, some faults, and what must hold at the end."""
