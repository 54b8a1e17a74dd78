"""What the recordings of the model list consist of: how many steps run, how many of them are opaque, how many segments.

    steps.py [names ...] [--mode eval|train|both] [--opaque]

An opaque step may run any Python code: facts are asked again behind it, and what lies on its two sides cannot be
compiled as one. --opaque lists them with how often each occurs in the whole list, and the steps behind which a
segment begins for another reason.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench")]

import torch  # noqa: E402

import models  # noqa: E402

GREY = {"sunk", "pure"}


def describe(step):
    """The step without its numbers, so that equal ones are counted together."""
    text = re.sub(r"^%\d+ = ", "", step["text"])
    text = re.sub(r"%\d+", "%", text)
    return f"{step['line']}: {text[:110]}"


def count(dump, opaque, ends):
    row = collections.Counter(segments=dump["segments"])
    before = None
    for step in dump["steps"]:
        flags = set(step["flags"])
        row["steps"] += "sunk" not in flags
        row["torch"] += "torch" in flags
        if "opaque" in flags:
            row["opaque"] += 1
            opaque[describe(step)] += 1
        if step["kind"] == "segment" and before is not None and "opaque" not in before["flags"]:
            ends[describe(before)] += 1
        if step["kind"] != "check" and not flags & GREY or "effect" in flags:
            before = step
    return row


def measure(entry, train):
    from kintsugi import _api
    engine = _api.start_engine()
    module = entry.make_train() if train else entry.make()
    compiled = engine.Compiled(entry.call(module) if not train else module)
    row, opaque, ends = collections.Counter(), collections.Counter(), collections.Counter()
    inputs = entry.training_inputs if train else entry.inputs
    with torch.set_grad_enabled(train):
        for i in range(2):
            args, kwargs = inputs(i)
            compiled(*args, **kwargs)
    for entry in compiled.entries():
        row["variants"] += 1
        row += count(engine.dump(entry), opaque, ends)
    return {"row": row, "opaque": opaque, "ends": ends}


def measure_forked(entry, train):
    """In a child, so that one model's state does not reach the next."""
    receive, send = os.pipe()
    if os.fork() == 0:
        os.close(receive)
        with os.fdopen(send, "w") as out:
            json.dump(measure(entry, train), out)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as data:
        text = data.read()
    os.wait()
    return json.loads(text) if text else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", choices=("eval", "train", "both"), default="eval")
    parser.add_argument("--opaque", action="store_true", help="list the opaque steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keys = ("variants", "segments", "steps", "torch", "opaque")
    total, opaque, ends = collections.Counter(), collections.Counter(), collections.Counter()
    print(f"{'model':26}{'mode':7}" + "".join(f"{k:>10}" for k in keys))
    for mode in ("eval", "train") if options.mode == "both" else (options.mode,):
        for entry in models.find(options.names, train=mode == "train"):
            entry.make()
            result = measure_forked(entry, mode == "train")
            row = result["row"] if result else {}
            print(f"{entry.name:26}{mode:7}" + "".join(f"{row.get(k, 0):>10}" for k in keys), "" if result else "failed", flush=True)
            if result:
                total.update(row)
                opaque.update(result["opaque"])
                ends.update(result["ends"])
    print(f"{'all':33}" + "".join(f"{total[k]:>10}" for k in keys))
    if options.opaque:
        for title, counter in (("opaque", opaque), ("a segment begins behind", ends)):
            print(f"\n{title}:")
            for text, n in counter.most_common():
                print(f"{n:6}  line {text}")


if __name__ == "__main__":
    main()
