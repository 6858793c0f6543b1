"""A team of any size in virtual time: real leases, a store in memory, and workers, people and faults by a seed."""
