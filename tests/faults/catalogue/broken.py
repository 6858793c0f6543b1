"""Faults that ended in a traceback, differed from the published code, or failed on small things."""

from __future__ import annotations

from tests.faults.planting import Fault

CLI, IO = "tests/test_cli.py", "tests/core/test_io.py"
MODEL = f"{CLI}::test_a_broken_model_folder_is_one_line"
TRACEBACKS = (
    Fault(
        "json-nested",
        "JSON nested 100,000 deep",
        "pathfinder/core/io.py",
        "    except RecursionError:",
        "    except ZeroDivisionError:",
        f"{IO}::test_hostile_json_in_a_line_is_refused_by_file_and_line[nested]",
    ),
    Fault(
        "json-digits",
        "an integer of 5,000 digits",
        "pathfinder/core/io.py",
        "    except ValueError as error:  # malformed",
        "    except json.JSONDecodeError as error:  # malformed",
        f"{IO}::test_hostile_json_in_a_line_is_refused_by_file_and_line[digits]",
    ),
    Fault(
        "line-long",
        "a line of 3 GB is read whole",
        "pathfinder/core/io.py",
        "        if len(line) > LONGEST_LINE:",
        "        if False:",
        f"{IO}::test_a_line_over_the_limit_is_refused_before_it_fills_the_memory",
    ),
    Fault(
        "weights-cut",
        "weights that are cut",
        "pathfinder/models/model.py",
        "except Exception as error:",
        "except (OSError, ValueError) as error:",
        f"{MODEL}[cut]",
    ),
    Fault(
        "config",
        "a config.json that is no object",
        "pathfinder/models/folders.py",
        "if not isinstance(content, dict)",
        "if content is None",
        f"{MODEL}[config-list]",
    ),
    Fault(
        "tokenizer",
        "a broken tokenizer.json",
        "pathfinder/models/tokens.py",
        "    except Exception as error:  # the loader",
        "    except ZeroDivisionError as error:  # the loader",
        f"{MODEL}[tokenizer]",
    ),
    Fault(
        "description",
        "a pathfinder.json that is a list",
        "pathfinder/models/description.py",
        'content.get("variant") if isinstance(content, dict) else None',
        'content.get("variant")',
        f"{MODEL}[description]",
    ),
    Fault(
        "nan",
        "weights that are no numbers",
        "pathfinder/prm/tree_reader.py",
        "        if np.isnan(rows).any():",
        "        if False:",
        f"{MODEL}[nan]",
    ),
    Fault(
        "weights-missing",
        "weights that lack a tensor",
        "pathfinder/models/model.py",
        '    if missing := sorted(found["missing_keys"]):',
        "    if missing := []:",
        f"{MODEL}[missing]",
    ),
    Fault(
        "body-cut",
        "a body that a store breaks off",
        "pathfinder/sources/remote.py",
        "except (ConnectionError, HTTPClientError, IncompleteReadError, Boto3Error)",
        "except (ConnectionError, HTTPClientError, Boto3Error)",
        "tests/sources/test_remote.py::test_a_body_that_breaks_off_is_transient",
    ),
    Fault(
        "rows-processbench",
        "a row of ProcessBench whose steps are no list of texts",
        "pathfinder/benchmarks/readers.py",
        '        raise DataError(f"{at}: {key} is {value!r:.80}; expected a list of texts. {_REMEDY}")',
        "        pass",
        "tests/benchmarks/test_readers.py::test_wrong_processbench_rows_are_named",
    ),
    Fault(
        "rows-prmbench",
        "a row of PRMBench of an unknown class",
        "pathfinder/benchmarks/readers.py",
        """raise DataError(f"{at}: classification is {name!r:.80};""",
        """str(f"{at}: classification is {name!r:.80};""",
        "tests/benchmarks/test_readers.py::test_wrong_prmbench_rows_are_named",
    ),
    Fault(
        "by-hand",
        "the error of a stage that is run by hand",
        "pathfinder/provenance/stage.py",
        "errors_without_traceback() if is_script else nullcontext()",
        "nullcontext()",
        "tests/provenance/test_stage.py::test_a_data_error_is_printed_without_a_traceback_and_leaves_no_record",
    ),
)
LETTER = (
    Fault(
        "separator",
        "an empty first step gets a separator",
        "pathfinder/core/prompts.py",
        'if joined else ""  # one empty',
        'if prefix else ""  # one empty',
        "tests/core/test_prompts.py::test_training_and_search_prompts_as_published",
    ),
    Fault(
        "captions",
        "the captions of Monte-Carlo steps are removed before labelling",
        "pathfinder/data/monte_carlo.py",
        'return text if preset == "official" else',
        "return",
        "tests/data/test_monte_carlo.py::test_cleaning_follows_the_preset",
    ),
    Fault(
        "captions-train",
        "the captions of Monte-Carlo steps are trained on",
        "pathfinder/core/records.py",
        '    if preset != "official":',
        "    if True:",
        "tests/stages/test_build.py::test_the_official_preset_removes_captions_after_labelling",
    ),
)
SMALL = (
    Fault(
        "link",
        "a link in a mirror leads out of it",
        "pathfinder/sources/catalogue.py",
        "        if not target.is_relative_to(mirror.resolve()):",
        "        if False:",
        "tests/sources/test_catalogue.py::test_a_link_in_a_mirror_cannot_leave_it",
    ),
    Fault(
        "address",
        "--url foo is tried nine times",
        "pathfinder/engines/openai_client.py",
        '            require_address(url, "give one such as http://localhost:8000/v1")',
        "            pass",
        "tests/engines/test_openai_client.py::test_what_is_no_address_is_refused_before_any_call",
    ),
    Fault(
        "score-empty",
        "score of an empty file is silent",
        "pathfinder/prm/score_lines.py",
        "    if not solutions:",
        "    if False:",
        f"{CLI}::test_a_file_without_solutions_is_refused",
    ),
    Fault(
        "grade-input",
        "grade reads no standard input",
        "pathfinder/core/given.py",
        '    if source == "-":',
        '    if source == "standard input":',
        f"{CLI}::test_grade_prints_the_row_of_a_benchmark",
    ),
)
