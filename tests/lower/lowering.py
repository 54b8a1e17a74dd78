"""Lowers what PyTorch calls while a function runs, evaluates the tensor program with the oracle, compares with eager.

A dispatch mode writes down each ATen call with the layout of its results, as py/capture does, but on real tensors, so that
eager's results are there to compare with.
"""

import atexit
import ctypes
import pathlib
import shutil
import subprocess
import tempfile

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128]
NAMES = dict(zip(DTYPES, "b8 u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128".split()))
FRESH, INPUT, SHARED, EXTERN = range(4)


def _build():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    sources = [str(p) for part in ("base", "ir", "aten", "lower", "diag") for p in sorted((ROOT / "src/core" / part).glob("*.c"))]
    target = folder + "/oracle.so"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE=", "-O1", "-g", "-shared", "-fPIC", "-I" + str(ROOT / "src"), *sources,
                    str(ROOT / "tests/lower/oracle.c"), "-lm", "-o", target], check=True)
    lib = ctypes.CDLL(target)
    lib.oracle_new.restype = ctypes.c_void_p
    for name in ("why", "text"):
        getattr(lib, "oracle_" + name).restype = ctypes.c_char_p
    return lib


_lib = None


def library():
    global _lib
    _lib = _lib or _build()
    return _lib


CAPTURED = set()  # overloads, of all graphs


class Capture(TorchDispatchMode):
    """The calls below as ATen text. Values are known by the tensor object, storages by their address."""

    def __init__(self, inputs):
        super().__init__()
        self.lines, self.numbers, self.storages, self.keep, self.count = [], {}, {}, [], 0
        for i, t in enumerate(inputs):
            self.lines.append(f"%{self.name(t)} = input {i} : {self.type(t)}")

    def name(self, t):
        """A new value, also when it is a tensor seen before: a call may return its argument."""
        self.count += 1
        self.numbers[id(t)] = self.count
        self.keep.append(t)
        return self.count

    def type(self, t):
        s = t.untyped_storage()
        self.keep.append(s)
        storage = self.storages.setdefault(s._cdata, len(self.storages) + 1)
        numbers = lambda xs: ", ".join(map(str, xs))
        return f"{NAMES[t.dtype]}[{numbers(t.shape)}]{{{numbers(t.stride())}}}@{storage}+{t.storage_offset()}"

    def argument(self, a, written=False):
        if isinstance(a, torch.Tensor):
            if id(a) not in self.numbers:  # a number that PyTorch wrapped before the mode saw it, as in x[0] = 5
                assert a.ndim == 0, "a tensor that is no input"
                return self.argument(a.item())
            return f"%{self.numbers[id(a)]}" + "!" * written
        if isinstance(a, (list, tuple, torch.Size)):
            return "[" + ", ".join(self.argument(x, written) for x in a) + "]"
        if a is None or isinstance(a, bool):
            return str(a)
        if isinstance(a, str):
            return '"' + a + '"'
        if isinstance(a, torch.dtype):
            return NAMES[a]
        if isinstance(a, float):
            return repr(a)
        return str(a).removeprefix("torch.")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = func._schema
        written = {a.name: a.alias_info is not None and a.alias_info.is_write for a in schema.arguments}
        parts = [self.argument(a, written[s.name]) for a, s in zip(args, schema.arguments)]
        parts += [f"{k}={self.argument(v, written[k])}" for k, v in kwargs.items()]
        CAPTURED.add(f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}")
        result = func(*args, **kwargs)
        results = [] if result is None else [result] if isinstance(result, torch.Tensor) else [r for r in result if r is not None]
        self.keep.append(results)
        names = ", ".join(f"%{self.name(r)}" for r in results)
        types_ = ", ".join(self.type(r) for r in results)
        head, tail = (f"{names} = ", f" : {types_}") if results else ("", "")
        head += "random " if torch.Tag.nondeterministic_seeded in func.tags else ""
        self.lines.append(f"{head}{func._schema.name.replace('::', '.')}.{schema.overload_name or 'default'}({', '.join(parts)}){tail}")
        return result


def capture(fn, inputs):
    """(text of the graph, eager's outputs as a list)"""
    mode = Capture(inputs)
    with torch.no_grad(), mode:
        out = fn(*inputs)
    outs = [out] if isinstance(out, torch.Tensor) else list(out)
    mode.lines.append("return " + ", ".join(f"%{mode.numbers[id(t)]}" for t in outs))
    return "\n".join(mode.lines) + "\n", outs


class Lowered:
    def __init__(self, text, fast_math=False):
        self.lib = library()
        self.at = ctypes.c_void_p(self.lib.oracle_new(text.encode(), int(fast_math)))
        self.status = self.lib.oracle_status(self.at)
        self.why = self.lib.oracle_why(self.at).decode()
        self.text = self.lib.oracle_text(self.at).decode()
        self.nextern = self.lib.oracle_nextern(self.at)

    def __del__(self):
        self.lib.oracle_free(self.at)

    def program_outputs(self, inputs):
        """Evaluates; None when the program cannot be (an extern, an index out of bounds)."""
        held = [t.contiguous().clone() for t in inputs]
        count = self.lib.oracle_nprogram(self.at)
        pointers = (ctypes.c_void_p * max(len(held), 1))(*[t.data_ptr() for t in held])
        results = (ctypes.c_void_p * max(count, 1))()
        if self.lib.oracle_eval(self.at, pointers, results) != 0:
            return None
        return [self._tensor(i, results[i]) for i in range(count)]

    def _tensor(self, i, data):
        layout = (ctypes.c_int64 * 34)()
        self.lib.oracle_layout(self.at, i, layout)
        ndim = layout[1]
        sizes, strides, dtype = layout[2:2 + ndim], layout[2 + ndim:2 + 2 * ndim], DTYPES[layout[0]]
        row_major = torch.empty(sizes, dtype=dtype)
        ctypes.memmove(row_major.data_ptr(), data, row_major.numel() * row_major.element_size())
        return torch.empty_strided(sizes, strides, dtype=dtype).copy_(row_major)

    def outputs(self, inputs, eager):
        """What the caller would get, with eager's sizes and strides."""
        made = self.program_outputs(inputs)
        if made is None:
            return None
        out = []
        for i, like in enumerate(eager):
            four = (ctypes.c_int64 * 4)()
            self.lib.oracle_output(self.at, i, four)
            kind, index, whole, offset = four
            if kind == INPUT:
                out.append(inputs[index] if whole else inputs[index].as_strided(like.shape, like.stride(), offset))
            elif kind == SHARED:
                out.append(made[index].as_strided(like.shape, like.stride(), offset))
            else:
                out.append(made[index])
        return out


def check(fn, *inputs, externs=0, atol=None, rtol=None):
    """fn lowered and evaluated gives what eager gives, bit for bit in layout and dtype. Returns the lowering."""
    copies = [t.clone(memory_format=torch.preserve_format) for t in inputs]
    text, eager = capture(fn, copies)
    lowered = Lowered(text)
    assert lowered.status == 0, f"{lowered.why}\n{text}"
    assert lowered.nextern == externs, f"{lowered.nextern} externs\n{text}{lowered.text}"
    if externs:
        return lowered
    got = lowered.outputs(inputs, eager)
    assert got is not None, f"not evaluated\n{text}{lowered.text}"
    for a, b in zip(got, eager):
        note = lambda m: f"{m}\n{text}{lowered.text}"
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), note(f"{a.stride()} {b.stride()} {a.dtype}")
        torch.testing.assert_close(a, b, equal_nan=True, atol=atol, rtol=rtol, msg=note)
    return lowered
