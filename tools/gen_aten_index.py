"""Writes src/core/aten/gen/by_name.inc: the rows of aten.def in the order of their names, for a binary search that needs no state of
its own; --check: is it as it should be?
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/core/aten/aten.def"
INDEX = ROOT / "src/core/aten/gen/by_name.inc"
ROW = re.compile(r"^ATEN\((\w+), (\w+),", re.M)


def index():
    text = TABLE.read_text()
    names = [f"aten.{operator}.{overload}" for operator, overload in ROW.findall(text)]
    lines = sum(line.startswith("ATEN(") for line in text.splitlines())
    if lines != len(names):
        sys.exit(f"{TABLE.name}: {lines} rows, {len(names)} understood")
    order = sorted(range(len(names)), key=lambda i: names[i])
    rows = [", ".join(map(str, order[i:i + 20])) + "," for i in range(0, len(order), 20)]
    head = "/* Made by tools/gen_aten_index.py from aten.def; do not edit. Row numbers in the order of the operators' names. */\n"
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if not INDEX.exists() or INDEX.read_text() != index():
            sys.exit(f"{INDEX.relative_to(ROOT)} is not that of aten.def: run tools/gen_aten_index.py")
        print("operators: ok")
    else:
        INDEX.parent.mkdir(exist_ok=True)
        INDEX.write_text(index())
