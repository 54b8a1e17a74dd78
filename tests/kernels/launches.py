"""What the tests of kernels start from: the engine, and what it says of a compiled function's launches."""

import pytest

kintsugi = pytest.importorskip("kintsugi")
try:
    from kintsugi import _kintsugi as engine
except ImportError:
    pytest.skip("the C extension is not built", allow_module_level=True)

from kintsugi._api import engine_of  # noqa: E402

# Products, convolutions, attention, recurrent layers, half precision and draws of our own are code for AVX-512 or AVX2 (kin_tile_here in core/tiles/tile.c).
with open("/proc/cpuinfo") as cpuinfo:
    OWN_PRODUCTS = {"avx2", "fma", "f16c"} <= set(cpuinfo.read().split())
engine._set_products(True)  # what runs is not to depend on what was measured here
needs_own_products = pytest.mark.skipif(not OWN_PRODUCTS, reason="products, recurrent layers and draws of our own need AVX2")


def versions(compiled):
    """One dict for each graph, or part of one, and each kind of inputs; of a function or a module."""
    return [v for entry in engine_of(compiled).entries() for subgraph in engine.kernels(entry) for v in subgraph["versions"]]


def runs(compiled):
    return sum(v["runs"] for v in versions(compiled))
