"""The rows of src/core/trace/callables.def: each names something that this Python and this PyTorch have, once."""
import importlib
import pathlib
import re
import types

import pytest

ROWS = re.findall(r'^CALLABLE\("([\w.]+)", "([^"]+)"', (pathlib.Path(__file__).parents[2] / "src/core/trace/callables.def").read_text(), re.M)
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)


def find(module, name):
    *path, last = name.split(".")
    home = importlib.import_module(module)
    for part in path:
        home = getattr(home, part)
    if last != "*":
        return vars(home)[last] if path else getattr(home, last)
    return [v for v in vars(home).values() if isinstance(v, METHODS)]


@pytest.mark.parametrize("module, name", ROWS)
def test_row_names_something(module, name):
    found = find(module, name)
    assert found if name.endswith("*") else callable(found)


def test_rows_are_many_and_no_two_are_of_one_callable():
    found = [id(find(m, n)) for m, n in ROWS if not n.endswith("*")]
    assert len(found) > 100
    assert len(set(found)) == len(found)
