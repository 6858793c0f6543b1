"""What a stage is made of and what it did: the stage graph, code identity, digests, records."""
