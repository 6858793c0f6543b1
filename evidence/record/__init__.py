"""The stage graph, code identity, content digests and lineage records."""
