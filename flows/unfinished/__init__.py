"""The unfinished work of stages, journals and checkpoints, follows a run through the remote to another machine."""
