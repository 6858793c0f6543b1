"""Why a decision was made: which training records it rests on, estimated, and proved by training without them."""
