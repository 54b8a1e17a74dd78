"""Makes the comparison of the behaviour corpus importable for the rule tests."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "corpus"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
