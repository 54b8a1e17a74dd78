"""make demo: a transformers model with random weights, compiled; prints its graphs, graph breaks and guards."""

import collections
import time

import torch

import kintsugi


def make_model():
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1000)
    torch.manual_seed(0)
    return BertModel(config).eval(), {"input_ids": torch.randint(0, 1000, (2, 32))}


def time_calls(fn, inputs, calls=30):
    """Median milliseconds of one call."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        fn(**inputs)
        times.append(time.perf_counter() - start)
    return sorted(times)[calls // 2] * 1e3


def show_explanation(output):
    print(f"graphs {output.graph_count}, graph breaks {output.graph_break_count}, torch calls {output.op_count}, "
          f"guards {len(output.out_guards)}, deferred effects {len(output.deferred_effects)}")
    for frame in output.frames:
        print(f"  {frame['name']}: {frame['outcome']}")
    for reason in output.break_reasons:
        print(f"  graph break: {reason}")
    kinds = collections.Counter(guard.kind for guard in output.out_guards)
    print("guards by kind:", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    for text in output.graph_texts[:1]:
        lines = text.splitlines()
        print("\n".join(lines[:40]))
        if len(lines) > 40:
            print(f"        ... {len(lines) - 40} more lines")


def main():
    model, inputs = make_model()
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        show_explanation(kintsugi.explain(model)(**inputs))
        compiled = kintsugi.compile(model)
        start = time.perf_counter()
        first = compiled(**inputs).last_hidden_state
        print(f"first call {1e3 * (time.perf_counter() - start):.1f} ms")
        again = compiled(**inputs).last_hidden_state
        assert torch.equal(first, expected) and torch.equal(again, expected), "compiled and eager results differ"
        print(f"eager {time_calls(model, inputs):.2f} ms, compiled {time_calls(compiled, inputs):.2f} ms per call; "
              "results are bitwise equal")
    print({key: value for key, value in kintsugi.stats(compiled).items() if isinstance(value, int)})


if __name__ == "__main__":
    main()
