"""CompileProfiler: a context manager that is also a backend and reports breaks and recompilations."""

import time
from collections import Counter

from . import _logs


class CompileProfiler:
    """with CompileProfiler() as prof: compile(fn, backend=prof)(x); print(prof.report())"""

    def __init__(self):
        self.frame_count = 0
        self.op_count = 0
        self.graph_times = []
        self._first = 0
        self._end = None

    def __call__(self, gm, example_inputs):
        start = time.perf_counter()
        self.frame_count += 1
        self.op_count += sum(node.op in ("call_function", "call_method", "call_module") for node in gm.graph.nodes)
        self.graph_times.append((f"graph {self.frame_count}", time.perf_counter() - start))
        return gm.forward

    def __enter__(self):
        self._first = len(_logs.events())
        return self

    def __exit__(self, *error):
        self._end = len(_logs.events())
        return False

    def _events(self, kind):
        return [e for e in _logs.events()[self._first:self._end] if e["event"] == kind]

    def get_metrics(self):
        failures = {}
        for event in self._events("recompile"):
            failures.setdefault((event["name"], event.get("filename"), event.get("line")), []).append(event["failures"])
        return {"guard_failures": failures}

    def report(self):
        title = "Torchdynamo Profiler Report"
        return "\n".join([title, "=" * len(title), "", *self._breaks(), "", *self._recompiles(), "", *self._times()]) + "\n"

    def _breaks(self):
        counts = Counter((e["type"], f"{e.get('filename')}:{e.get('line')}") for e in self._events("break"))
        if not counts:
            return ["Graph Breaks", "------------", "No graph breaks detected."]
        return ["Graph Breaks", "------------", "Graph Break Reason | Count",
                *(f"{kind} at {place} | {count}" for (kind, place), count in counts.most_common())]

    def _recompiles(self):
        failures = self.get_metrics()["guard_failures"]
        if not failures:
            return ["Recompilation", "-------------", "No recompilation detected."]
        most = max(map(len, failures.values()))
        return ["Recompilation", "-------------", "Function | Recompiles | Recompile Reasons",
                *(f"{name} ({file}:{line}) | {len(reasons)} | {reasons[-1].strip()}"
                  for (name, file, line), reasons in failures.items()),
                f"Set torch._dynamo.config.cache_size_limit to {most + 1} to avoid being cache limited."]

    def _times(self):
        records = [f"{e['name']} | {e['record_ns'] / 1e6:.2f} ms" for e in self._events("record")]
        return ["Compile Times", "-------------", "Function | Recording", *records] if records else []
