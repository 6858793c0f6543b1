"""Malformed inputs: one generator of malformations and one judgement of what a reader makes of each.

``python -m tests.campaigns.faults.inputs`` shows the kinds per format. A format (``documents``) is a valid document,
the values that each of its fields may have, and the reader of the product. ``malform`` makes malformed documents from
it, and ``judgement`` says what the reader must do: raise one clear error, or read what the document says.
"""
