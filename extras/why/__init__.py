"""Why a decision was made: an estimate of the training records behind it, and a proof by training without them."""
