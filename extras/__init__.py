"""What joins the method and the evidence: the way of a record, why a decision was made, publishing a model."""
