"""A few random programs per run (KIN_FUZZ_COUNT, KIN_FUZZ_SEED), and tests of the generator, checker and shrinker."""
import collections
import os
import re

import pytest

import fuzz_programs
from fuzz_generate import ANY_SIZE, generate
from kincorpus import engines, isolate

FIRST = int(os.environ.get("KIN_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("KIN_FUZZ_COUNT", "40"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_program(engine, seed):
    exits = (seed % 13, seed % 29) if engine.counts else ()
    found = fuzz_programs.check(generate(seed), engine, exits)
    if found:
        pytest.fail(f"python tests/diff/fuzz_programs.py --seed {seed} --show\n" + "\n".join(found[:6]), pytrace=False)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT // 2))
def test_program_over_sizes(engine, seed):
    found = fuzz_programs.check(generate(seed, sizes=True), engine, (seed % 13,) if engine.counts else ())
    if found:
        pytest.fail(f"python tests/diff/fuzz_programs.py --sizes --seed {seed} --show\n" + "\n".join(found[:6]), pytrace=False)


def test_sizes_are_drawn_for_all_tensors():
    for seed in range(60):
        program = generate(seed, sizes=True)
        source = program.source()
        compile(source, "generated", "exec")
        assert len(program.sizes) == len(program.rows) >= 10 and len(set(program.sizes)) > 2
        assert not any(re.search(pattern, source) for pattern, _ in ANY_SIZE), seed


def test_same_seed_same_program():
    assert generate(7).source() == generate(7).source()
    assert generate(7).source() != generate(8).source()


def test_programs_are_valid_and_varied():
    words = collections.Counter()
    for seed in range(150):
        source = generate(seed).source()
        compile(source, "generated", "exec")
        body = source.split("def f(")[1]
        words.update(w for w in ("for ", "while ", "try:", "finally:", "with ", "match ", "nonlocal", "print(", "lambda",
                                 "break", ".sum() >", "GD[", "obj.", "helper0(", "raise ", "walk(") if w in body)
    assert all(n >= 5 for n in words.values()) and len(words) == 16, words


def test_most_programs_return():
    returned = total = 0
    for seed in range(40):
        lines = fuzz_programs.describe(generate(seed)).splitlines()
        returned += sum(": returns" in line for line in lines)
        total += len(lines)
    assert returned >= 0.6 * total, (returned, total)


@pytest.mark.parametrize("broken,at_least", [
    (engines.StaleGlobals, 8), (engines.DropsPrints, 8), (engines.RunsTwice, 20), (engines.KeepsResult, 25),
    (engines.Rounds, 2), (engines.WrongLines, 2)], ids=lambda v: getattr(v, "name", str(v)))
def test_broken_engine_is_caught(broken, at_least):
    caught = sum(bool(fuzz_programs.check(generate(seed), broken(), isolate=False)) for seed in range(40))
    assert caught >= at_least


def test_shrinks_to_the_cause():
    engine = engines.DropsPrints()
    seed = next(s for s in range(100) if "print(" in generate(s).source().split("def f(")[1]
                and fuzz_programs.check(generate(s), engine, isolate=False))
    program, found = fuzz_programs.shrink(generate(seed), engine, [], isolate=False)
    assert found and any("stdout" in d for d in found)
    body = program.source().split("def f(")[1]
    assert "print(" in program.source() and len(body.splitlines()) <= 8, body


def test_crash_is_a_finding():
    with pytest.raises(isolate.Died, match="crash: signal SIGABRT"):
        isolate.in_child(os.abort)
    with pytest.raises(isolate.Died, match="the harness raised ZeroDivisionError"):
        isolate.in_child(lambda: 1 // 0)
    assert isolate.in_child(lambda: [1] * 100_000) == [1] * 100_000


def test_what_does_not_come_again_is_told_as_it_was():
    program, found = fuzz_programs.shrink(generate(3), engines.make_engine("kintsugi"), ["hang: nothing after 60 s"], isolate=False)
    assert program.seed == 3 and found == ["not seen when the program ran again:", "hang: nothing after 60 s"]
