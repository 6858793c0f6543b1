from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ground.io import DataError
from pathfinder.core.mixes import records_of, select, share_of
from pathfinder.core.params import Mix


def trees(sizes: list[tuple[str, int]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "tree_id": [f"t{place}" for place in range(len(sizes))],
            "source": [source for source, _ in sizes],
            "branches": [list(range(size)) for _, size in sizes],
        },
        schema={"tree_id": pl.String, "source": pl.String, "branches": pl.List(pl.Int64)},
    )


sources = st.sampled_from(["prm800k", "rlhflow_mistral", "math_shepherd"])


@given(
    st.lists(st.tuples(sources, st.integers(1, 9)), min_size=1, max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 9),
)
def test_a_smaller_mix_is_part_of_a_larger_one_and_both_contain_all_human_ratings(
    sizes: list[tuple[str, int]], one: float, other: float, seed: int
) -> None:
    frame = trees(sizes)
    small, large = (select(frame, share, seed) for share in sorted((one, other)))
    order = frame["tree_id"].to_list()
    for part, share in ((small, min(one, other)), (large, max(one, other))):
        chosen = part["tree_id"].to_list()
        assert chosen == [key for key in order if key in set(chosen)]
        machine = part.filter(pl.col("source") != "prm800k")
        whole = frame.filter(pl.col("source") != "prm800k")
        assert len(part) - len(machine) == len(frame) - len(whole)
        assert records_of(machine) <= round(share * records_of(whole))
        assert round(share * records_of(whole)) - records_of(machine) < 9 or share == 1
    assert set(small["tree_id"]) <= set(large["tree_id"])
    assert select(frame, 1.0, seed).equals(frame)


def test_the_seed_decides_which_trees_a_mix_takes() -> None:
    frame = trees([("math_shepherd", 1)] * 40)
    chosen = [select(frame, 0.5, seed)["tree_id"].to_list() for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert chosen[0] != frame["tree_id"].to_list()[:20]


def test_a_mix_that_the_profile_does_not_have_is_named() -> None:
    mixes = [Mix(name="400k", share=0.5)]
    assert share_of(mixes, "400k") == 0.5
    with pytest.raises(DataError, match=r"no mix '550k' in `mixes`; expected one of 400k"):
        share_of(mixes, "550k")
