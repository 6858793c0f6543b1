"""What a plan knows of machines: cards, disks, servers and training trees, and the plan as text."""
