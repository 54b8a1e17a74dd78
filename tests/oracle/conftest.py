"""The oracle's modules and those of its neighbours can be imported."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / p) for p in ("tests/diff", "tests/corpus", "bench"))]
