"""The results of a measurement as a JSON file: settings, points of each axis, and why an axis has none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from shape_figures import SHARES, Point

if TYPE_CHECKING:
    from pathlib import Path

# The version of the file's form.
_FORM: Final = 1


class ResultsUnreadable(Exception):
    """A file is not one of this program, or of another version; the text has the file and the reason."""


@dataclass(slots=True)
class Results:
    """The results of one or several runs of the program.

    Attributes:
        settings: the machine and the settings, by axis, as texts and numbers.
        points: the points of each axis, in the order of the measurement.
        failures: for each axis that did not end, the reason.
    """

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    points: dict[str, list[Point]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Replace the file, atomically."""
        content = {
            "form": _FORM,
            "shares": SHARES,
            "settings": self.settings,
            "failures": self.failures,
            "axes": {name: [point.as_object() for point in points] for name, points in self.points.items()},
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        spare = file.with_name(f"{file.name}.tmp")
        spare.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        spare.replace(file)

    @classmethod
    def load(cls, file: Path) -> Results:
        """Return the content of a file.

        Raises:
            ResultsUnreadable: it is missing or has another form.
        """
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["form"] != _FORM or tuple(content["shares"]) != SHARES:
                raise ResultsUnreadable(f"{file}: it is of another version of this program: measure again")
            points = {name: [Point.from_object(each) for each in axis] for name, axis in content["axes"].items()}
            return cls(content["settings"], points, content["failures"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ResultsUnreadable(f"{file}: expected a file of `make bench-shape`: {error}") from error
