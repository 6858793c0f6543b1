"""The fifteen faults that a first rehearsal found, each with a test that notices it: --faults puts them back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.faults import planting
from tests.campaigns.faults.planting import Fault, Planted
from tests.campaigns.rehearsal.show import RehearsalError, show

FAULTS = (
    Fault(
        "1",
        "PyTorch's CPU build survives make BUILD=cuda",
        "Makefile",
        "infra/locks/$(BUILD).lock,$(if $(filter cudacpu,$(BUILD)$(INSTALLED)),torch))",
        "infra/locks/$(BUILD).lock)",
        "tests/infra/test_makefile.py::test_the_environment_ends_with_the_build_that_was_asked_for",
    ),
    Fault(
        "2",
        "the weights of the base model are not fetched",
        "pathfinder/sources/hub.py",
        '_SUFFIXES = (WEIGHTS, ".json"',
        '_SUFFIXES = (".json"',
        "tests/sources/test_hub.py::test_weights_are_fetched_and_read_without_a_network",
    ),
    Fault(
        "3",
        "the export of a Hub model reads a folder that has only a pointer",
        "pathfinder/models/folders.py",
        "path = cached_folder(model, replace(pointer, files=only)) / TOKENIZER",
        "path = model / TOKENIZER",
        "tests/stages/test_export.py::test_the_special_tokens_of_a_hub_model_are_read_from_its_cache",
    ),
    Fault(
        "4",
        "the search sets come from a mirror that nobody has",
        "infra/profiles/paper.yaml",
        "name: search\n    kind: https",
        "name: search\n    kind: mirror",
        "tests/sources/test_profiles.py::test_the_six_search_sets_arrive_under_the_names_of_the_reader",
    ),
    Fault(
        "5",
        "every server takes GPU 0",
        "pathfinder/engines/vllm_server.py",
        "return os.environ | cards.environment(mine) |",
        "return os.environ |",
        "tests/engines/test_vllm_server.py::test_each_server_has_cards_of_its_own_and_plain_sampling",
    ),
    Fault(
        "5",
        "the whole memory of a card counts as free",
        "pathfinder/models/cards.py",
        'Device("cuda", float(free), float(total)',
        'Device("cuda", float(total), float(total)',
        "tests/models/test_footprint.py::test_what_other_processes_use_is_not_free",
    ),
    Fault(
        "6",
        "several visible GPUs wrap the model in DataParallel",
        "pathfinder/training/trainer.py",
        "self._network = model\n",
        "self._network = torch.nn.DataParallel(model) if torch.cuda.device_count() > 1 else model\n",
        "tests/training/test_trainer.py::test_several_visible_gpus_never_split_a_row_of_trees",
    ),
    Fault(
        "7",
        "a record over the token budget is refused",
        "pathfinder/training/examples.py",
        "if len(tree) > self.budget and len(records) > 1:",
        "if len(tree) > self.budget:\n            raise DataError(name)\n        if False:",
        "tests/training/test_examples.py::test_large_trees_are_split_and_one_large_record_is_an_example_by_itself",
    ),
    Fault(
        "7",
        "a search path over the PRM's positions blocks the search",
        "pathfinder/policy/search.py",
        "or (candidates > 0 and not fitting)",
        "",
        "tests/policy/test_search.py::test_a_path_over_the_context_of_the_prm_ends_and_the_others_continue",
    ),
    Fault(
        "7",
        "the plan recommends a token budget below the longest record",
        "pathfinder/models/footprint.py",
        "train, least = params.train, max(_LEAST_BUDGET, longest_record(params))",
        "train, least = params.train, _LEAST_BUDGET",
        "tests/models/test_footprint.py::test_no_remedy_goes_below_the_longest_record",
    ),
    Fault(
        "8",
        "the model's generation_config.json changes the policy's sampling",
        "pathfinder/engines/vllm_server.py",
        '"--generation-config": "vllm"',
        '"--generation-config": "auto"',
        "tests/engines/test_vllm_server.py::test_each_server_has_cards_of_its_own_and_plain_sampling",
    ),
    Fault(
        "9",
        "training waits until a checkpoint is written",
        "pathfinder/training/checkpoints.py",
        "        self._thread.start()\n",
        "        self._thread.start()\n        self._thread.join(1)\n        assert not self._thread.is_alive()\n",
        "tests/training/test_checkpoints.py::test_training_goes_on_while_a_checkpoint_is_written",
    ),
    Fault(
        "10",
        "every process tokenises the whole training set",
        "pathfinder/training/stored.py",
        "if is_first and not folder.exists():",
        "if not folder.exists():",
        "tests/training/test_stored.py::test_only_the_first_process_tokenises",
    ),
    Fault(
        "11",
        "a model of the Hub is not pinned",
        "infra/profiles/paper.yaml",
        "revision: ef9926d75ab1d54532f6a30dd5e760355eb9aa4d",
        "revision: main",
        "tests/sources/test_profiles.py::test_branches_that_can_move_are_known[paper]",
    ),
    Fault(
        "12",
        "the mixes hold all rated completions",
        "infra/profiles/paper.yaml",
        "prm800k_records: 345000 ",
        "prm800k_records: 0 ",
        "tests/planning/test_gpu_plan.py::test_a_mix_holds_what_its_name_says",
    ),
    Fault(
        "13",
        "the paper's pass-1 figures are subtracted from figures by a different rule",
        "pathfinder/reporting/paper_tables.py",
        "published = results.read(benchmark, as_published)",
        "published = results.benchmarks[benchmark]",
        "tests/reporting/test_tables.py::test_the_paper_s_figures_are_compared_with_the_published_rule_only",
    ),
    Fault(
        "14",
        "PRMBench runs with the training prompt only",
        "pathfinder/prm/evaluate.py",
        'preset=preset_of("prmbench", "official"), mode=Mode.FIRST',
        'preset="default", mode=Mode.FIRST',
        "tests/stages/test_prmbench.py::test_the_official_preset_makes_the_published_reading_the_main_one",
    ),
    Fault(
        "14",
        "one preset decides for several benchmarks",
        "pathfinder/policy/evaluate.py",
        'params.search.preset != "official"',
        'params.prmbench.preset != "official"',
        "tests/policy/test_evaluate.py::test_only_the_published_search_preset_is_official",
    ),
    Fault(
        "15",
        "nothing says which driver the CUDA wheels need",
        "infra/doctor/cards.py",
        "DRIVER = 580",
        "DRIVER = 0",
        "tests/infra/doctor/test_cards.py::test_an_old_driver_and_an_old_card_are_named",
    ),
)
"""In the order of their discovery; some have several sides."""


def check(clone: Path) -> None:
    """Run the tests that notice the faults; raises ``RehearsalError`` if one fails."""
    if failure := planting.check(clone, FAULTS):
        raise RehearsalError(f"a test of the fifteen faults fails:\n{failure}")


def plant_all(clone: Path, numbers: Sequence[int] = ()) -> None:
    """Put the faults ``numbers`` (default: all) back one at a time; raises ``RehearsalError`` for those unnoticed."""
    chosen = [fault for fault in FAULTS if not numbers or int(fault.key) in numbers]
    show("tests without a fault")
    check(clone)
    planted = planting.plant_all([clone], chosen, _show)
    if failures := [f"fault {one.fault.key}, {one.fault.words}: {one.problem}" for one in planted if one.problem]:
        raise RehearsalError("\n".join(failures))


def _show(planted: Planted) -> None:
    fault = planted.fault
    show(f"{fault.key:>2} {fault.words}: {planted.problem or 'noticed'} ({planted.seconds:.0f} s)")
