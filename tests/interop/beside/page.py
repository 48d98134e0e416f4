"""The table of docs/compared-with-rocketmq.md, from the data."""

import re

from tests.interop.beside.explanations import FOLDER, differences, explanations, recorded

PAGE = FOLDER.parents[2] / "docs" / "compared-with-rocketmq.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
_CALLS_MAX = 3
_HEAD = ("| calls | part | RocketMQ | here | why |", "| --- | --- | --- | --- | --- |")


def table():
    """Return the lines of the table: a row for each explanation, in their order."""
    return [*_HEAD, *(_row(each) for each in explanations())]


def _row(explanation):
    calls = [f"`{each}`" for each in explanation.calls[:_CALLS_MAX]]
    if len(explanation.calls) > _CALLS_MAX:
        calls.append(f"{len(explanation.calls) - _CALLS_MAX} more")
    see = f" ({explanation.see})" if explanation.see else ""
    cells = (", ".join(calls), _code(explanation.part), _text(explanation.rocketmq), _text(explanation.ours))
    return f"| {' | '.join(cells)} | {explanation.why}{see} |"


def _text(value):
    return {"*": "varies", "absent": "absent", "": "empty"}.get(value) or _code(value)


def _code(value):
    return f"`{value}`".replace("|", "\\|")


def counts(ours):
    """Return a sentence with the numbers of calls and of differences.

    Args:
        ours: our reduced answers.
    """
    known = recorded()
    found = {each.call for each in differences(known, ours)}
    same = len(known) - len(found)
    return f"{len(known)} calls: {same} have the same answers, {len(found)} differ, all of them as the table says."


def updated(page, ours):
    """Return the page with the table and the numbers of now."""
    middle = "\n".join((BEGIN, "", counts(ours), "", *table(), "", END))
    return re.sub(f"{BEGIN}.*{END}", lambda _: middle, page, flags=re.DOTALL)
