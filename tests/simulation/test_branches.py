"""The branches that simulated runs take are measured correctly, and rare branches are listed with a reason."""

from pathlib import Path

import pytest

from dledger.testing.coverage.branches import BranchHits, branches, compile_with_probes, globals_of_probes
from dledger.testing.coverage.census import Census, read_list
from dledger.testing.coverage.prober import Branch
from dledger.testing.runner import Result, run_seed, run_seeds

LIST = Path(__file__).parent / "rare_branches.txt"

SOURCE = '''
def choose(a, b, items):
    """A docstring."""
    if a and b:
        return "both"
    while a:
        a -= 1
    for item in items:
        if item:
            break
    value = a or b
    assert a or not a
    match value:
        case 0:
            return [item for item in items if item > 1]
    try:
        return items[value] if b else None
    except IndexError:
        return "none"
'''


def taken_by(*arguments) -> tuple[object, list[str]]:
    """Return the result of `choose`, and the branches that it took, in order."""
    found: list[Branch] = []
    code = compile_with_probes("module", SOURCE.encode(), "module.py", found)
    hits = BranchHits()
    names = globals_of_probes(hits)
    exec(code, names)
    hits.count = len(found)
    given = names["choose"](*arguments)
    return given, [branch.text for branch, is_taken in zip(found, hits.take(), strict=True) if is_taken]


def test_code_with_probes_gives_what_it_gives_without():
    plain: dict = {}
    exec(SOURCE, plain)
    for arguments in ((1, 1, [1]), (0, 0, [0, 2]), (1, 0, [5]), (0, 1, [7, 8]), (0, 9, [7]), (2, 0, [])):
        assert plain["choose"](*arguments) == taken_by(*arguments)[0]


def test_each_part_of_a_condition_is_a_branch_of_its_own():
    _, taken = taken_by(1, 0, [5])

    assert taken[:4] == ["is called", "a and b: a -> true", "a and b: b -> false", "if a and b -> false"]
    assert "while a -> true" in taken
    assert "while a -> false" in taken
    assert "for item in items -> end" not in taken


def test_cases_handlers_and_comprehensions_are_branches():
    _, taken = taken_by(0, 0, [0, 2])
    assert taken[-3:] == ["match value: case 0", "for item if item > 1 -> true", "for item if item > 1 -> false"]

    _, taken = taken_by(0, 9, [7])
    assert taken[-3:] == ["match value: no case", "items[value] if b else None: b -> true", "except IndexError"]


def test_probes_change_no_run_and_see_what_it_does():
    (measured,) = run_seeds([1], is_measured=True)

    assert run_seed(1).summary == measured.summary
    names = [branch.name for branch, is_taken in zip(branches(), measured.branches, strict=True) if is_taken]
    assert "dledger.core.leader:become_leader: is called" in names


def test_census_reports_unlisted_branches_that_few_runs_took():
    census = Census([Branch("m", "f", text, 1) for text in ("often", "never", "never, and listed")])
    for _ in range(3):
        census.add(Result(1, None, "", None, "", bytes((1, 0, 0))))

    assert census.rare() == {"m:f: never": 0, "m:f: never, and listed": 0}
    assert census.unlisted({"m:f: never, and listed": "a reason"}) == ["0 of 3 runs: m:f: never"]


def test_outermost_of_rare_branches_represents_those_within_it():
    found: list[Branch] = []
    compile_with_probes("module", SOURCE.encode(), "module.py", found)

    def unlisted(*taken: str) -> list[str]:
        census = Census(found)
        census.add(Result(1, None, "", None, "", bytes(branch.text in taken for branch in found)))
        return [line.partition("choose: ")[2] for line in census.unlisted({})]

    # The comprehension is in the only case, which no run took; `b` is evaluated only if `a` is true.
    ends = ["while a -> true", "while a -> false", "for item in items -> item", "for item in items -> end"]
    rest = ["match value: no case", "items[value] if b else None: b -> true", "items[value] if b else None: b -> false"]
    value = ["a or b: a -> true", "a or b: a -> false"]
    assert unlisted() == ["is called"]
    assert unlisted("is called", "if a and b -> false", "a and b: a -> false") == [
        "a and b: a -> true",
        *ends,
        *value,
        "match value: case 0",
        *rest,
        "except IndexError",
    ]


def test_list_needs_a_reason_for_each_branch():
    assert read_list("# why\na\nb\n# why else\nc\n") == {"a": "why", "b": "why", "c": "why else"}

    with pytest.raises(ValueError, match="no reason for this branch"):
        read_list("a\n")


def test_listed_branches_are_there():
    """A name that is no longer in any source could hide a new branch."""
    assert sorted(set(read_list(LIST.read_text())) - {branch.name for branch in branches()}) == []
