"""The table of operators, src/core/aten/aten.def, for tests."""

import pathlib
import re
from typing import NamedTuple

TABLE = pathlib.Path(__file__).resolve().parents[2] / "src/core/aten/aten.def"


class Row(NamedTuple):
    name: str  # "add.Tensor"
    shape: str
    lower: str
    complex: str
    traits: frozenset


def _read():
    rule = r"(NONE|\w+\([^()]*\)|[A-Z_]+)"
    row = re.compile(rf"^ATEN\((\w+), (\w+), +{rule}, +{rule}, +(\w+), +([^)]+)\)$")
    for line in TABLE.read_text().splitlines():
        if line.startswith("ATEN("):
            op, overload, shape, lower, complex, traits = row.match(line).groups()
            yield Row(f"{op}.{overload}", shape, lower, complex, frozenset(traits.split(" | ")) - {"0"})


ROWS = list(_read())
