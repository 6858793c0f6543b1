"""Find the near duplicates of a small set of texts among very many: an exact join on word 3-shingles.

Two texts are near duplicates if the Jaccard similarity of their shingle sets reaches a threshold. Near duplicates share
at least one of their rarest shingles, so only such pairs are compared (prefix filtering, Chaudhuri et al. 2006, "A
primitive operator for similarity joins"). No pair is missed. Time is linear in the number of texts and
of the compared pairs, which are quadratic for texts of one template; memory depends on the small set. Words and
shingles are 64-bit hashes; among ten million, a collision has a probability of about 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

_WORD = r"\w+|[^\w\s]"  # or a sign
SHINGLE = 3
_TEXTS = 8192  # per chunk
_PAIRS = 100_000  # per comparison
Pair = tuple[int, int, float]
"""The place of a text, the place of its near duplicate in the index, and their similarity."""


class NearDuplicates:
    """An index of normalised texts. A text of fewer than ``shortest`` words has no near duplicates.

    A text of one or two words is one shingle.
    """

    def __init__(self, texts: Sequence[str], threshold: float, shortest: int = 0) -> None:
        self.threshold, self.shortest = threshold, shortest
        words = _words(texts)
        self.is_short: list[bool] = (words.list.len() < shortest).to_list()
        sets = self._sets(words)
        by_rarity = sets.group_by("shingle").len().sort("len", "shingle")
        self._ranks = by_rarity.select("shingle", rank=pl.int_range(pl.len(), dtype=pl.UInt32))
        ranked = sets.join(self._ranks, on="shingle").with_columns(shared=pl.col("size"))
        prefixes = ranked.filter(self._in_prefix())
        self._prefixes = prefixes.select("rank", indexed="text", indexed_size="size")
        self._sets_by_text = ranked.group_by(indexed="text").agg(indexed_ranks="rank")

    def pairs(self, texts: Sequence[str]) -> Iterator[Pair]:
        """Every pair of a text and a near duplicate in the index."""
        for start in range(0, len(texts), _TEXTS):
            for found in self._pairs(texts[start : start + _TEXTS]):
                yield from ((start + place, indexed, similarity) for place, indexed, similarity in found.iter_rows())

    def _pairs(self, texts: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The pairs of one chunk as columns ``text``, ``indexed`` and ``similarity``."""
        ranked = self._sets(_words(texts)).join(self._ranks, on="shingle")
        ranked = ranked.with_columns(shared=pl.len().over("text").cast(pl.Int64))
        ranked = ranked.filter(pl.col("shared") >= self._least("size"))  # fewer cannot reach the threshold
        prefixes = ranked.filter(self._in_prefix()).select("rank", "text", "size")
        candidates = prefixes.join(self._prefixes, on="rank").drop("rank")
        short, long = pl.min_horizontal("size", "indexed_size"), pl.max_horizontal("size", "indexed_size")
        pairs = candidates.with_columns(long=long).filter(short >= self._least("long")).drop("long").unique()
        ranks = ranked.group_by("text").agg("rank")
        common = pl.col("rank").list.set_intersection("indexed_ranks").list.len().cast(pl.Int64)
        similarity = common / (pl.col("size") + pl.col("indexed_size") - common)
        for part in pairs.iter_slices(_PAIRS):  # texts made from one template have millions of candidates
            sets = part.join(ranks, on="text").join(self._sets_by_text, on="indexed")
            found = sets.select("text", "indexed", similarity=similarity)
            yield found.filter(pl.col("similarity") >= self.threshold)

    def _least(self, size: str) -> pl.Expr:
        """The minimum number of shingles that a set of this size shares with a near duplicate."""
        return (self.threshold * pl.col(size) - 1e-9).ceil().clip(1).cast(pl.Int64)

    def _in_prefix(self) -> pl.Expr:
        """The rarest shingles of each text; the remaining ones are too few for a near duplicate."""
        return pl.col("rank").rank("ordinal").over("text") <= pl.col("shared") - self._least("size") + 1

    def _sets(self, words: pl.Series) -> pl.DataFrame:
        """The distinct shingles of each text: its place ``text``, the ``shingle``, and the ``size`` of its set."""
        rows = words.to_frame("word").with_row_index("text").filter(words.list.len() >= self.shortest)
        filled = pl.concat_list("word", *[pl.lit("")] * SHINGLE).list.head(pl.col("word").list.len().clip(SHINGLE))
        rows = rows.with_columns(filled).explode("word").with_columns(pl.col("word").hash())
        following = (pl.col("word").shift(-offset).alias(f"word_{offset}") for offset in range(1, SHINGLE))
        shingles = rows.select(
            "text", last=pl.col("text").shift(1 - SHINGLE), shingle=pl.struct("word", *following).hash()
        )
        sets = shingles.filter(pl.col("text") == pl.col("last")).select("text", "shingle").unique()
        return sets.with_columns(size=pl.len().over("text").cast(pl.Int64))


def _words(texts: Sequence[str]) -> pl.Series:
    return pl.Series(texts, dtype=pl.String).str.extract_all(_WORD)
