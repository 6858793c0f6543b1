from __future__ import annotations

from typing import Any

from ground.io import text_digest
from pathfinder.judge.critic_answers import official_box, official_vote, step_scores
from pathfinder.judge.critic_prompts import critique_prompt
from pathfinder.judge.parsing import official_scores, read_scores
from tests.published.kept import cases, differences

LABELLED = cases("judges", "VLLMInferenceWithRetry.batch_infer_score")


def test_the_scores_of_the_labelling_judge_are_read_as_published() -> None:
    def ours(text: str) -> dict[str, float]:
        found = official_scores(text) or (-1, -1, -1)
        return dict(zip(("score_A", "score_B", "score_C"), found, strict=True)) | {"score_O": found[2]}

    assert not differences(LABELLED, ours)


def test_the_labels_are_those_that_build_dataset_makes_of_the_scores() -> None:
    for case in LABELLED:
        scores, _ = read_scores(case.input, "official", cut=True)
        published = [case.output[f"score_{letter}"] for letter in "ABC"]
        if published[0] == -1:
            assert scores is None
        else:
            assert scores is not None
            assert [*scores] == [score == 1 for score in published]


def test_a_critic_of_processbench_is_asked_and_read_as_published() -> None:
    def prompt(given: dict[str, Any]) -> str:
        return text_digest(critique_prompt(given["problem"], given["steps"]))

    assert not differences(cases("judges", "prepare_input_boxed"), prompt)
    assert not differences(cases("judges", "extract_answer"), official_box)
    assert not differences(cases("judges", "main"), official_vote)


def test_a_critic_of_prmbench_is_read_as_published() -> None:
    def ours(text: str) -> Any:
        found = step_scores(text, 3, cut=False, preset="official")
        return found and {"validity": list(found.validity), "redundancy": list(found.redundancy)}

    assert not differences(cases("judges", "process_policy_lm_evaluation_response"), ours)
