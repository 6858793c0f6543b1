"""Why a decision was made: the training records that it depends on, estimated, and proved by training without them."""
