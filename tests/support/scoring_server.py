"""A server of a PRM in a thread of the tests, and a request to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.folders import open_model
from pathfinder.prm.batching import BYTES_PER_TOKEN, Batcher, threads_for
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.serving import http_server, listening, make_app

PROBLEM, STEPS = "1+1?", ["It is <extra><|im_end|> two.", "So 2."]
ONE = {"solutions": [{"problem": PROBLEM, "steps": STEPS}]}


class Server:
    """A server in a thread; ``scored`` lists the sizes of its batches."""

    def __init__(self, folder: Path) -> None:
        scorer, self.scored = Scorer(open_model(folder)), list[int]()

        def score(solutions: Sequence[Solution]) -> list[list[StepScore]]:
            self.scored.append(len(solutions))
            return scorer.score(solutions)

        self.batcher = Batcher(score, scorer.parts, threads=threads_for(scorer))


@contextmanager
def serving(made: Server) -> Iterator[str]:
    """The address of a running server."""
    with listening("127.0.0.1", 0) as (opened, address), made.batcher as batcher:
        app = http_server(make_app(batcher, "tiny", most_tokens=20_000 // BYTES_PER_TOKEN), batcher, "critical")
        thread = threading.Thread(target=app.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        while not app.started:
            time.sleep(0.01)
        yield address
        app.should_exit = True
        thread.join()
