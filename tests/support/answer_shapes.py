"""The public list of shapes of a judge's answer, and how the parser reads each: python -m tests.support.answer_shapes.

The command writes the table of tests/campaigns/answer_shapes.md. A judge may answer in each shape, by itself or because
a hostile step provokes it. A reading is the three scores or the reason why there are none.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[1] / "campaigns/answer_shapes.md"
_BEGIN, _END = "<!-- shapes -->\n", "<!-- /shapes -->"

SHAPES: tuple[tuple[str, str, str], ...] = (
    ("as the prompt asks", "Score A: 1\nScore B: 0\nScore C: 1", "1 0 1"),
    ("values on lines of their own", "Score A:\n1\nScore B:\n0\nScore C:\n1", "1 0 1"),
    ("captions in bold", "**Score A:** 1\n**Score B:** 0\n**Score C:** 1", "1 0 1"),
    ("lines in bold", "**Score A: 1**\n**Score B: 0**\n**Score C: 1**", "1 0 1"),
    ("headings without a colon", "### Score A\n1\n\n### Score B\n0\n\n### Score C\n1", "no_scores"),
    ("headings with a colon", "### Score A:\n**1**\n### Score B:\n**0**\n### Score C:\n**1**", "1 0 1"),
    ("a table with a row per score", "| Score A | 1 |\n| Score B | 0 |\n| Score C | 1 |", "1 0 1"),
    (
        "a table with a column per score",
        "| Score A | Score B | Score C |\n| --- | --- | --- |\n| 1 | 0 | 1 |",
        "not_binary",
    ),
    (
        "a table with reasons",
        "| Score | Value |\n|---|---|\n| Score A | 1 (ok) |\n| Score B | 0 |\n| Score C | 1 |",
        "1 0 1",
    ),
    ("JSON", '{"Score A": 1, "Score B": 0, "Score C": 1}', "1 0 1"),
    ("JSON with snake case", '{"score_a": 1, "score_b": 0, "score_c": 1}', "1 0 1"),
    ("JSON with camel case", '{"scoreA": 1, "scoreB": 0, "scoreC": 1}', "1 0 1"),
    ("JSON in one object", '{"result": {"Score A": 1, "Score B": 0, "Score C": 1}}', "1 0 1"),
    ("JSON with a reason", '{"reason": "It says “4”.", "Score A": 1, "Score B": 0, "Score C": 1}', "1 0 1"),
    ("words before JSON", 'Result: {"Score A": 1, "Score B": 0, "Score C": 1}', "1 0 1"),
    ("JSON with texts", '{"Score A": "1", "Score B": "0", "Score C": "1"}', "1 0 1"),
    ("JSON with truth values", '{"Score A": true, "Score B": false, "Score C": true}', "not_binary"),
    ("XML elements", "<score_a>1</score_a>\n<score_b>0</score_b>\n<score_c>1</score_c>", "no_scores"),
    ("LaTeX boxes", "Score A: $\\boxed{1}$\nScore B: $\\boxed{0}$\nScore C: $\\boxed{1}$", "1 0 1"),
    ("LaTeX mathematics", "Score A: \\(1\\)\nScore B: \\(0\\)\nScore C: \\(1\\)", "1 0 1"),
    ("equals signs", "Score A = 1, Score B = 0, Score C = 1", "1 0 1"),
    ("a sentence with “is”", "Score A is 1, Score B is 0 and Score C is 1.", "no_scores"),
    ("hyphens", "Score A - 1\nScore B - 0\nScore C - 1", "no_scores"),
    ("dashes", "Score A – 1\nScore B – 0\nScore C – 1", "no_scores"),
    ("arrows", "Score A → 1\nScore B → 0\nScore C → 1", "no_scores"),
    ("no separator", "Score A 1\nScore B 0\nScore C 1", "no_scores"),
    ("no spaces", "ScoreA:1 ScoreB:0 ScoreC:1", "1 0 1"),
    ("lower case", "score a: 1\nscore b: 0\nscore c: 1", "1 0 1"),
    ("full-width colons", "Score A：1\nScore B：0\nScore C：1", "1 0 1"),
    ("full-width digits", "Score A: １\nScore B: ０\nScore C: １", "not_binary"),
    ("CRLF", "Score A: 1\r\nScore B: 0\r\nScore C: 1\r\n", "1 0 1"),
    (
        "captions in parentheses",
        "Score A (Mathematical logic): 1\nScore B (Consistency): 0\nScore C (Optimality): 1",
        "1 0 1",
    ),
    (
        "captions after the colon",
        "Score A: Mathematical logic: 1\nScore B: Consistency: 0\nScore C: Optimality: 1",
        "not_binary",
    ),
    ("a reason after each value", "Score A: 1 because it adds up\nScore B: 0, uses 5 apples\nScore C: 1.", "1 0 1"),
    (
        "a reason before each value",
        "Score A: The math is correct, so 1\nScore B: wrong, so 0\nScore C: 1",
        "not_binary",
    ),
    ("a numbered list", "1. Score A: 1\n2. Score B: 0\n3. Score C: 1", "1 0 1"),
    ("a list", "- Score A: 1\n- Score B: 0\n- Score C: 1", "1 0 1"),
    ("decimals that are whole", "Score A: 1.0\nScore B: 0.0\nScore C: 1.0", "1 0 1"),
    ("fractions of one", "Score A: 1/1\nScore B: 0/1\nScore C: 1/1", "not_binary"),
    ("“out of 1”", "Score A: 1 out of 1\nScore B: 0 out of 1\nScore C: 1 out of 1", "1 0 1"),
    ("number words", "Score A: one\nScore B: zero\nScore C: one", "not_binary"),
    ("yes and no", "Score A: Yes\nScore B: No\nScore C: Yes", "not_binary"),
    ("the template's braces", "Score A: {0 or 1 only}\nScore B: {0 or 1 only}\nScore C: {0 or 1 only}", "not_binary"),
    ("“0 or 1”", "Score A: 0 or 1\nScore B: 0 or 1\nScore C: 0 or 1", "not_binary"),
    ("another digit", "Score A: 2\nScore B: 0\nScore C: 1", "not_binary"),
    ("two digits", "Score A: 10\nScore B: 0\nScore C: 1", "not_binary"),
    ("a leading zero", "Score A: 01\nScore B: 0\nScore C: 1", "not_binary"),
    ("a decimal", "Score A: 0.5\nScore B: 0\nScore C: 1", "not_binary"),
    ("per cent", "Score A: 1%\nScore B: 0\nScore C: 1", "not_binary"),
    ("a sign", "Score A: -1\nScore B: 0\nScore C: 1", "not_binary"),
    ("not applicable", "Score A: 1\nScore B: N/A\nScore C: 1", "not_binary"),
    ("an empty value", "Score A: 1\nScore B:\nScore C: 1", "not_binary"),
    ("a missing score", "Score A: 1\nScore B: 0", "incomplete"),
    ("the reverse order", "Score C: 1\nScore B: 0\nScore A: 1", "incomplete"),
    ("another order", "Score B: 1\nScore A: 0\nScore C: 1", "incomplete"),
    (
        "a thinking section",
        "<think>Score A: 0\nScore B: 0\nScore C: 0</think>\nScore A: 1\nScore B: 0\nScore C: 1",
        "1 0 1",
    ),
    ("a thinking section without an end", "<think>Score A: 1\nScore B: 0\nScore C: 1", "unfinished_thinking"),
    (
        "a thinking section that the prompt opened",
        "Score A: 0 Score B: 0 Score C: 0</think>Score A: 1\nScore B: 0\nScore C: 1",
        "1 0 1",
    ),
    ("a draft", "Draft:\nScore A: 0\nScore B: 0\nScore C: 0\n\nFinal:\nScore A: 1\nScore B: 0\nScore C: 1", "1 0 1"),
    (
        "a quotation before the block",
        'The step says: "Score A: 1 Score B: 1 Score C: 1".\nScore A: 0\nScore B: 0\nScore C: 0',
        "0 0 0",
    ),
    (
        "a quotation after the block",
        'Score A: 0\nScore B: 0\nScore C: 0\n\nI ignore the text "Score A: 1 Score B: 1 Score C: 1".',
        "contradicted",
    ),
    (
        "a block quotation after the block",
        "Score A: 0\nScore B: 0\nScore C: 0\n\n> Score A: 1 Score B: 1 Score C: 1\n",
        "contradicted",
    ),
    ("only a quotation", "The step says “Score A: 1 Score B: 1 Score C: 1”.\nI cannot grade it.", "no_scores"),
    ("only a block quotation", "> Score A: 1 Score B: 1 Score C: 1\n\nA: 0, B: 0, C: 0", "no_scores"),
    (
        "a code block after the block",
        "Score A: 0\nScore B: 0\nScore C: 0\n\nIgnored in the step:\n```\nScore A: 1\nScore B: 1\nScore C: 1\n```",
        "contradicted",
    ),
    ("a code block", "```\nScore A: 1\nScore B: 0\nScore C: 1\n```", "1 0 1"),
    ("a later score", "Score A: 1\nScore B: 1\nScore C: 1\n\nActually, Score B: 0", "contradicted"),
    (
        "a sentence that corrects a score",
        "Score A: 1\nScore B: 1\nScore C: 1\n\nActually, Score B should be 0.",
        "contradicted",
    ),
    ("another such sentence", "Score A: 1\nScore B: 1\nScore C: 1\n\nWait, Score B ought to become 0.", "contradicted"),
    (
        "letters that correct scores",
        "Score A: 1\nScore B: 1\nScore C: 1\n\nRevised scores: A=0, B=0, C=1",
        "contradicted",
    ),
    (
        "a list that corrects scores",
        "Score A: 1\nScore B: 1\nScore C: 1\n\nRevised scores: 0, 1, 1",
        "contradicted",
    ),
    ("a list of the same scores", "Score A: 1\nScore B: 0\nScore C: 1\n\nScores: [1, 0, 1]", "1 0 1"),
    ("a doubt", "Score A: 1 or maybe 0\nScore B: 1\nScore C: 1", "not_binary"),
    ("two values", "Score A: 1\nScore B: 1 vs. 0\nScore C: 1", "not_binary"),
    (
        "a letter that corrects a score",
        "Score A: 1\nScore B: 1\nScore C: 1\n\nOn reflection, B should be 0.",
        "contradicted",
    ),
    ("letters that repeat the scores", "Score A: 1\nScore B: 0\nScore C: 1\n\nFinal scores: A=1, B=0, C=1", "1 0 1"),
    (
        "a remark about another score",
        "Score A: 1\nScore B: 1 (on reflection, C is 0 only if redundant)\nScore C: 1",
        "1 1 1",
    ),
    (
        "a variable named like a score",
        "Score A: 1\nScore B: 1\nScore C: 1\n\nThese are final.\nThe step sets A = 0.",
        "1 1 1",
    ),
    ("a choice of values", "Score A: 0 | **1**\nScore B: **0** | 1\nScore C: 0 | **1**", "not_binary"),
    ("boxes to tick", "Score A: 0 [ ] 1 [x]\nScore B: 0 [x] 1 [ ]\nScore C: 0 [ ] 1 [x]", "not_binary"),
    (
        "a second block that breaks off",
        "Score A: 1\nScore B: 0\nScore C: 1\n\nRevised:\nScore A: 0\nScore B",
        "contradicted",
    ),
    ("letters only", "Final answer: A: 1, B: 0, C: 1", "no_scores"),
    ("values only", "1\n0\n1", "no_scores"),
    ("a tuple", "Scores (A, B, C): 1, 0, 1", "no_scores"),
    ("names of the criteria", "Math logic score: 1\nConsistency score: 0\nOptimality score: 1", "no_scores"),
    ("letters before the word", "A Score: 1\nB Score: 0\nC Score: 1", "no_scores"),
    ("another language", "评分 A：1\n评分 B：0\n评分 C：1", "no_scores"),
    ("a refusal", "I cannot grade this step.", "no_scores"),
    ("nothing", "", "no_scores"),
    ("the range in parentheses", "Score A (0 or 1): 1\nScore B (0 or 1): 0\nScore C (0 or 1): 1", "1 0 1"),
    ("the range as 0/1", "Score A (0/1): 1\nScore B (0/1): 0\nScore C (0/1): 1", "1 0 1"),
    ("the range in brackets", "Score A [0-1]: 1\nScore B [0-1]: 0\nScore C [0-1]: 1", "1 0 1"),
    ("emoji before the values", "Score A: ✅ 1\nScore B: ❌ 0\nScore C: ✅ 1", "not_binary"),
    ("emoji as values", "Score A: ✅\nScore B: ❌\nScore C: ✅", "not_binary"),
    ("a value struck out", "Score A: ~~0~~ 1\nScore B: 0\nScore C: 1", "not_binary"),
    ("a value with its revision", "Score A: 0 → 1\nScore B: 0\nScore C: 1", "not_binary"),
    ("a value and its correction", "Score A: 1, no wait, 0\nScore B: 0\nScore C: 1", "contradicted"),
    ("both values", "Score A: 1 or 0\nScore B: 0\nScore C: 1", "not_binary"),
    ("HTML", "<b>Score A:</b> 1<br><b>Score B:</b> 0<br><b>Score C:</b> 1", "not_binary"),
    ("invisible characters", "Score\u200b A: 1\nScore\u200b B: 0\nScore\u200b C: 1", "no_scores"),
    ("no-break spaces", "Score\xa0A:\xa01\nScore\xa0B:\xa00\nScore\xa0C:\xa01", "1 0 1"),
    ("Cyrillic letters", "Score А: 1\nScore В: 0\nScore С: 1", "no_scores"),
    (
        "blocks for two steps",
        "Step 1:\nScore A: 1\nScore B: 1\nScore C: 1\nStep 2:\nScore A: 1\nScore B: 0\nScore C: 1",
        "1 0 1",
    ),
    ("a sum", "Score A: 1 + 0\nScore B: 0\nScore C: 1", "not_binary"),
    ("an exponent", "Score A: 1e0\nScore B: 0\nScore C: 1", "not_binary"),
    ("the other value in parentheses", "Score A: 1 (not 0)\nScore B: 0 (not 1)\nScore C: 1", "1 0 1"),
    ("a sentence without separators", "I give Score A a 1, Score B a 0 and Score C a 1.", "no_scores"),
    ("two scores at once", "Score A and Score B: 1\nScore C: 0", "incomplete"),
    ("JSON in a code block", '```json\n{\n  "Score A": 1,\n  "Score B": 0,\n  "Score C": 1\n}\n```', "1 0 1"),
    ("quoted values", "Score A: '1'\nScore B: '0'\nScore C: '1'", "1 0 1"),
    ("answer tags", "<answer>Score A: 1 Score B: 0 Score C: 1</answer>", "1 0 1"),
    ("a fourth score", "Score A: 1\nScore B: 0\nScore C: 1\nScore D: 0", "1 0 1"),
    ("an overall score", "Score A: 1\nScore B: 0\nScore C: 1\nOverall score: 0", "1 0 1"),
    ("a condition before the block", "If the step were right, Score A: 1 Score B: 1 Score C: 1 would apply.", "1 1 1"),
    ("a negation", "Score A: not 1\nScore B: 0\nScore C: 1", "not_binary"),
    ("a scale", "Score A: 1 out of 5\nScore B: 0 out of 5\nScore C: 1 out of 5", "not_binary"),
    ("a count before the value", "Score A: 0 errors, so 1\nScore B: 0\nScore C: 1", "contradicted"),
    ("numbered reasons", "Score A:\n1. The sum is right.\nScore B:\n0\nScore C:\n1", "not_binary"),
    (
        "a reasoning section",
        "<reasoning>Score A: 0 Score B: 0 Score C: 0</reasoning>\nScore A: 1\nScore B: 0\nScore C: 1",
        "1 0 1",
    ),
    ("a confidence after the value", "Score A: 1 0.9\nScore B: 0 0.8\nScore C: 1 0.7", "not_binary"),
    (
        "a draft and a quoted copy of it",
        "Score A: 1\nScore B: 0\nScore C: 1\n\n> Score A: 1 Score B: 0 Score C: 1",
        "1 0 1",
    ),
    ("a block that is repeated", "Score A: 1\nScore B: 0\nScore C: 1\nScore A: 1\nScore B: 0\nScore C: 1", "1 0 1"),
)
"""The name of each shape, an answer in it, and its reading: ``math consistency optimality`` or a reason."""


def table() -> str:
    """The shapes as a Markdown table."""
    rows = [f"| {name} | {_code(text)} | {reading} |" for name, text, reading in SHAPES]
    return "\n".join(["| shape | answer | reading |", "| --- | --- | --- |", *rows]) + "\n"


def page(text: str) -> str:
    """The page with the table of ``SHAPES``."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + table() + _END + rest.partition(_END)[2]


def _code(text: str) -> str:
    """An answer as code in a cell of a table; ⏎ is a line break."""
    shown = text.replace("\r\n", "␍⏎").replace("\n", "⏎").replace("|", "\\|").replace("\u200b", "(U+200B)")
    shown = shown.replace("\u00a0", "(U+00A0)")
    return f"``` {shown} ```" if "`" not in shown else f"```` {shown} ````"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
