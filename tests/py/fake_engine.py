"""A stand-in for kintsugi._kintsugi in tests of the package alone: same names, runs everything eagerly.

`use()` installs it in sys.modules under the extension's name and returns it; the graphs it dumps are given by tests.
"""

import json
import sys
import types

KINDS = ["record", "extend", "break", "effect", "recompile", "limit", "fallback", "exit", "lower", "fusion", "part", "cache",
         "unfreeze", "bug", "reset"]
ROW = {"id": "KIN0001", "row": 0, "why": "DATA_DEPENDENT_BRANCH", "stock": ["GB0170"], "category": "data",
       "type": "Data-dependent branching", "explanation": "Python must know.", "hints": ["Use `torch.where`."],
       "fix": "use `torch.where`"}


class Entry:
    def __init__(self, number, dump):
        self.number = number
        self.reason = ""
        self.dump = dump

    def stats(self):
        return {"graphs": len(self.dump["graphs"]), "ops": sum(len(graph["nodes"]) for graph in self.dump["graphs"])}


class Compiled:
    def __init__(self, fn, *, fullgraph=False, dynamic=None, backend=None, name="", options=None, disable=False):
        self.fn = fn
        self.kwargs = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "options": options,
                       "disable": disable}
        self.__name__ = name or getattr(fn, "__qualname__", type(fn).__name__)
        self._entries = []
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        result = self.fn(*args, **kwargs)
        if not self._entries and engine.next_dump is not None:
            engine.numbers += 1
            self._entries.append(Entry(engine.numbers, engine.next_dump))
            engine.log(event="record", name=self.__name__, entry=engine.numbers, graphs=1, ops=1,
                       reason="", record_ns=1e6)
            if engine.listener is not None:
                engine.listener()
        return result

    def stats(self):
        return {"calls": self.calls}

    def _divide(self, entry, backend):
        return [(1, None)]

    def entries(self):
        return list(self._entries)

    def reset(self):
        self._entries.clear()


class Engine(types.ModuleType):
    Compiled = Compiled

    def __init__(self):
        super().__init__("kintsugi._kintsugi")
        self.options_set = {}
        self.lines = []
        self.listener = None
        self.next_dump = None
        self.numbers = 0
        self.recording = False
        self.resets = 0

    def set_option(self, name, value):
        self.options_set[name] = value

    def _set_cache(self, folder, limit):
        self.options_set["cache"] = folder, limit

    def _set_compile_threads(self, number):
        self.options_set["compile_threads"] = number

    def __getattr__(self, name):
        """Settings that tests do not ask for are taken in silence."""
        if name.startswith("_set_"):
            return lambda *values: None
        raise AttributeError(f"module 'kintsugi._kintsugi' has no attribute {name!r}")

    def set_listener(self, listener):
        self.listener = listener

    def log(self, **event):
        seq = len(self.lines)
        why = next((i for i, row in enumerate(self.break_rows(), 1) if row["why"] == event.get("why")), 0)
        self.lines.append((seq, KINDS.index(event["event"]), why, json.dumps({**event, "seq": seq})))

    def events_since(self, seq):
        return self.lines[seq:]

    def event_kinds(self):
        return KINDS

    def take_recorded(self):
        return []

    def break_rows(self):
        return [ROW]

    def dump(self, entry):
        return entry.dump

    def kernels(self, entry):
        return []

    def is_recording(self):
        return self.recording

    def reset(self):
        self.resets += 1


engine = None


def use():
    """Puts a fresh fake in place of the extension; call before kintsugi is imported."""
    global engine
    engine = Engine()
    for name in [name for name in sys.modules if name == "kintsugi" or name.startswith("kintsugi.")]:
        del sys.modules[name]
    sys.modules["kintsugi._kintsugi"] = engine
    return engine
