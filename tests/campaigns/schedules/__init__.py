"""Random schedules of a team: two people, three machines, one fault or two, and what must hold at the end."""
