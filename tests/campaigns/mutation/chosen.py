"""The modules that are mutated, smallest first, and the tests that own each."""

from __future__ import annotations

CHOSEN: dict[str, tuple[str, ...]] = {
    "stages/filter.py": ("tests/stages/test_filter.py",),
    "pathfinder/core/labels.py": ("tests/core/test_labels.py", "tests/stages/test_filter.py"),
    "pathfinder/tree/tree.py": ("tests/tree/test_tree.py", "tests/tree/test_layout.py"),
    "pathfinder/engines/journal.py": ("tests/engines/test_journal.py",),
    "pathfinder/tree/passes.py": ("tests/tree/test_passes.py",),
    "pathfinder/judge/parsing.py": ("tests/judge/test_parsing.py",),
    "pathfinder/judge/critic_answers.py": ("tests/judge/test_critic_answers.py",),
    "pathfinder/data/upstream.py": (
        "tests/data/test_upstream.py",
        "tests/data/test_prm800k.py",
        "tests/data/test_monte_carlo.py",
    ),
    "pathfinder/data/prm800k.py": ("tests/data/test_prm800k.py",),
    "pathfinder/data/monte_carlo.py": ("tests/data/test_monte_carlo.py",),
    "pathfinder/benchmarks/bootstrap.py": ("tests/benchmarks/test_bootstrap.py",),
    "pathfinder/benchmarks/processbench.py": (
        "tests/benchmarks/test_processbench.py",
        "tests/benchmarks/test_grade_files.py",
    ),
    "pathfinder/benchmarks/prmbench.py": (
        "tests/benchmarks/test_prmbench.py",
        "tests/benchmarks/test_grade_files.py",
    ),
    "pathfinder/benchmarks/readers.py": ("tests/benchmarks/test_readers.py",),
    "pathfinder/benchmarks/grading.py": (
        "tests/benchmarks/test_comparing.py",
        "tests/benchmarks/test_grading.py",
        "tests/benchmarks/test_grading_process.py",
    ),
    "pathfinder/benchmarks/grade.py": ("tests/benchmarks/test_grade.py", "tests/benchmarks/test_grade_files.py"),
    "pathfinder/tree/packing.py": ("tests/tree/test_packing.py",),
    "pathfinder/tree/layout.py": ("tests/tree/test_layout.py", "tests/tree/test_tree.py"),
    "evidence/verbs/check.py": (
        "tests/evidence/test_checking.py",
        "tests/evidence/test_evidence.py",
        "tests/evidence/test_report.py",
    ),
}
