"""Faults that one failing or interrupted system call brought to light."""

from __future__ import annotations

from tests.campaigns.faults.planting import Fault

IO, REMOTE = "tests/ground/test_io.py", "tests/sources/test_remote.py"
CALLS = (
    Fault(
        "rust-error",
        "a full disk under polars or safetensors is a traceback, or an error without a reason",
        "ground/io.py",
        "    elif not isinstance(error, PathfinderError) and (found := _SYSTEM_ERROR.search(str(error))):",
        '    elif found := _SYSTEM_ERROR.search(""):',
        f"{IO}::test_an_error_of_the_system_in_a_library_has_its_number_and_the_file",
    ),
    Fault(
        "rust-header",
        "a table that a full disk cuts within a header of Parquet is a traceback without the file",
        "ground/io.py",
        "    elif _NO_CAUSE in str(error):",
        "    elif not error:",
        f"{IO}::test_a_table_that_a_full_disk_cuts_in_a_header_is_an_error_with_the_file",
    ),
    Fault(
        "lock-window",
        "a writer loses its new file to another one, which takes it for left over if the clock is set forward",
        "ground/io.py",
        "        if temporary.exists():\n            return temporary, descriptor",
        "        return temporary, descriptor",
        f"{IO}::test_a_file_taken_for_left_over_before_its_lock_is_made_again",
    ),
    Fault(
        "race-left",
        "a killed commit's test of the store stays for ever",
        "evidence/remote/publication.py",
        '    store.sweep("probe/", time.time() - _PROBE_S)\n',
        "",
        f"{REMOTE}::test_what_a_killed_race_left_is_deleted_by_a_later_one",
    ),
    Fault(
        "half-arrays",
        "on a full disk, half of the tokenised examples are taken for written, and every later run refuses them",
        "pathfinder/training/stored.py",
        "        file.write(array.data)  # no copy: the largest array has gigabytes\n",
        "        array.tofile(file)\n",
        "tests/training/test_stored.py::test_a_full_disk_is_noticed_although_numpy_does_not",
    ),
    Fault(
        "half-removed",
        "a training that is killed while it removes its progress leaves half of it, and every later run is refused",
        "pathfinder/training/checkpoints.py",
        "    folder.replace(finished)\n    remove(finished)\n",
        "    remove(folder)\n",
        "tests/training/test_checkpoints.py::test_progress_is_never_half_removed",
    ),
    Fault(
        "interrupted-removal",
        "an interrupted call leaves a part of the former folder for ever",
        "ground/io.py",
        "    for _ in range(2):\n        if path.is_dir()",
        "    for _ in range(1):\n        if path.is_dir()",
        "tests/ground/test_io.py::test_an_interrupted_call_leaves_nothing_behind",
    ),
    Fault(
        "arrow-close",
        "an error at the end of a table has no cause and is a traceback",
        "pathfinder/core/tables.py",
        "pyarrow.parquet.ParquetWriter(file,",
        "pyarrow.parquet.ParquetWriter(temporary,",
        "tests/campaigns/faults/test_syscalls.py::test_a_table_that_cannot_be_closed_is_named_with_the_cause",
    ),
    Fault(
        "two-names",
        "an entry of the log keeps the temporary name of a writer that was killed after it had made the entry",
        "ground/io.py",
        "        if not _renamed(temporary, path, _RENAME_NOREPLACE):\n    ",
        "",
        f"{IO}::test_a_new_file_never_has_two_names",
    ),
    Fault(
        "page-error",
        "Great Expectations prints a traceback for a page that a full disk refuses, and continues",
        "pathfinder/gates/checker.py",
        "        pages.addFilter(_raise_system_error)\n",
        "",
        "tests/gates/test_checker.py::test_a_page_that_a_full_disk_refuses_is_an_error_without_a_traceback",
    ),
)
