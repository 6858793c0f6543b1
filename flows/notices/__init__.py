"""Being told of runs that failed, crashed or did not start: what a notice says, and the automations that send it."""
