"""All tamperings of ``test_tampering``, with their names. Each returns what an error must name."""

from __future__ import annotations

from tests.evidence.tampering import bucket, claims, log, outs, records

CAMPAIGN = [
    *outs.workspace(),
    *outs.caches(),
    *claims.locks(),
    *claims.together(),
    *claims.pointers(),
    *claims.documents(),
    *records.pipes(),
    *records.links(),
    *records.records(),
    *records.ledger(),
    *records.statements(),
    *records.journals(),
    *log.published(),
    *log.signatures(),
]
"""Those with a project and a remote that is a folder."""
FAR = [*bucket.stored(), *bucket.evidence(), *bucket.log(), *bucket.runs()]
"""Those with a bucket."""
