"""A PRM for search-and-learn: return ``PathFinder(config)`` from its ``load_prm``. It runs in the same process."""

from pathfinder import PRM


class PathFinder:
    """Scores as search-and-learn asks: per question and answer, the rewards of the answer's steps."""

    def __init__(self, search_config):
        self.prm = PRM.load(search_config.prm_path)

    def score(self, questions, outputs):
        """``outputs[i]`` are answers to ``questions[i]``; blank lines separate the steps."""
        pairs = [
            (q, [part for part in a.split("\n\n") if part.strip()] or [a or " "])
            for q, answers in zip(questions, outputs, strict=True)
            for a in answers
        ]
        rewards = iter([found.rewards if found.scored else [0.0] for found in self.prm.score_many(pairs)])
        return [[next(rewards) for _ in answers] for answers in outputs]
