"""Step programs written down by hand, for tests of replay without the recorder.

    p = Program(outer)
    x = p.local(0)
    y = p.step("binary", x, p.const(10), imm=5, snap=p.at(outer, "BINARY_OP", locals=[x, 0], stack=[x, ten]))
    p.step("return", y, out=False)
    p.run(3)
"""

import dis
import os
import subprocess
import sysconfig

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SOURCES = ["core/base/*.c", "core/diag/*.c", "core/trace/*.c", "core/track/*.c", "core/bytecode/*.c", "py/entry/*.c", "py/replay/*.c",
           "py/compat/frame_*.c", "py/compat/generator*.c",
           "py/compat/failure.c", "py/compat/heap.c", "py/compat/imports.c", "py/compat/kinds.c", "py/compat/signals.c",
           "py/compat/super.c",
           "py/refs/*.c", "py/compat/codes.c", "py/aten/track.c"]

FLAGS = {"torch": 1, "opaque": 2, "break": 4, "effect": 8, "pure": 16, "mutates": 32, "raises": 128}
PUSH, DROP, NONE, INIT, DEFAULT, HASATTR, FALLBACK, TRUTH, FALSITY, NEVER = range(10)
TRUE, FALSE, TYPE, VERSION, IS, IS_NOT, EQ, LEN, NULL, NOTNULL, META, SAME, NOT_SAME = range(13)
_CONST, _SRC, _STEP = 1, 2, 3


def build(folder):
    """Compiles the test extension into the folder and imports it."""
    import glob
    import importlib.util

    src = os.path.join(ROOT, "src")
    files = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "replaytest.c")]
    for pattern in SOURCES:
        files += sorted(glob.glob(os.path.join(src, pattern)))
    target = os.path.join(folder, "replaytest" + sysconfig.get_config_var("EXT_SUFFIX"))
    flags = os.environ.get("KIN_TEST_CFLAGS", "-O1 -g").split()
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-D_GNU_SOURCE"]
    command += ["-I", src, "-I", sysconfig.get_paths()["include"]] + flags
    subprocess.run(command + files + ["-o", target], check=True)
    spec = importlib.util.spec_from_file_location("replaytest", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offset_of(func, opname, nth=0):
    """Byte offset of the nth instruction of that name."""
    found = [i.offset for i in dis.get_instructions(func) if i.opname == opname]
    return found[nth]


class Program:
    ext = None

    def __init__(self, func):
        self.func = func
        self.vals, self.steps, self.snaps = [], [], []
        self.entry = None
        self._consts = {}

    def _value(self, **row):
        self.vals.append(row)
        return len(self.vals)

    def local(self, index):
        return self._value(kind=_SRC, access=0, key=index)

    def function(self):
        return self._value(kind=_SRC, access=1)

    def const(self, obj):
        key = id(obj)
        if key not in self._consts:
            self._consts[key] = self._value(kind=_CONST, obj=obj)
        return self._consts[key]

    def snap(self, func, code, offset, locals, stack=(), parent=0, resume=PUSH, extra=0, exc=0):
        self.snaps.append(dict(func=func, code=code, offset=offset, vals=list(locals) + list(stack), nlocals=len(locals),
                               parent=parent, resume=resume, extra=extra, exc=exc))
        return len(self.snaps)

    def at(self, func, opname, nth=0, *, vid=None, locals, stack=(), **more):
        """Snapshot at the nth instruction of that name; the function is a constant unless `vid` says otherwise."""
        return self.snap(vid or self.const(func), func.__code__, offset_of(func, opname, nth), locals, stack, **more)

    def step(self, kind, *args, flags="", out=True, **more):
        row = dict(kind=kind, args=list(args), flags=sum(FLAGS[f] for f in flags.split()), **more)
        index = len(self.steps) + 1
        result = index
        if out:
            result = row["out"] = self._value(kind=_STEP, step=index)
        self.steps.append(row)
        return result

    def branch(self, check):
        """What follows runs when the check fails."""
        self.steps[check - 1]["alt"] = len(self.steps) + 1

    def make(self):
        if self.entry is None:
            self.entry = self.ext.make(self.func, self.vals, self.steps, self.snaps)
        return self.entry

    def run(self, *args, force=-1, log=None):
        return self.ext.run(self.make(), args, force, log)

    def counters(self):
        return self.ext.counters(self.make())
