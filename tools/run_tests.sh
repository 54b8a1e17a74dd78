#!/usr/bin/env bash
# The Python side of `make test`, after lint, the C tests and the build: does it compile for other versions, the watcher's test, the examples of graph breaks,
# random programs, then pytest over every test folder there is. pytest comes last, so that its closing line is the last one;
# a part that failed before it still fails the run. Usage: tools/run_tests.sh PYTHON BUILD
#
# KIN_FUZZ_COUNT  random programs in all, two processes (default 300, with CI=true 1000)
# KIN_FUZZ_SEED   the first one (default 1000)
# KIN_FUZZ_KINDS   programs over all kinds of tensors (default 150, with CI=true 500)
# KIN_FUZZ_TRAINING  random programs that train, half of them with kernels (default 200, with CI=true 2000)
# KIN_FUZZ_SIZES  random programs over sizes that vary, 0 and 1 included (default 100, with CI=true 3000): two thirds are tensor programs, each over
#                 fourteen pairs of sizes, the others Python programs, half of them with kernels
# KIN_FUZZ_KERNELS  random tensor programs, compiled, under the sanitizers (default 300, with CI=true 2000)
#
# Recording and replay are compared with eager bit by bit, without kernels (tests/conftest.py). With kernels, a share of the same runs
# again, with tolerances (tests/corpus/kincorpus/tolerance.py); KIN_TURN=N takes another share than the usual one.
#
# The corpus of Python programs and the oracle over it take a third of the time of all tests: a third of the cases runs (KIN_CORPUS_SHARE=1/1: all),
# another one with each commit.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
build=$2
export PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # the tensors here are small: more threads would only spin
count=${KIN_FUZZ_COUNT:-$([ "${CI:-}" = true ] && echo 1000 || echo 300)}
seed=${KIN_FUZZ_SEED:-1000}
kernels=${KIN_FUZZ_KERNELS:-$([ "${CI:-}" = true ] && echo 2000 || echo 300)}
sizes=${KIN_FUZZ_SIZES:-$([ "${CI:-}" = true ] && echo 3000 || echo 100)}
training=${KIN_FUZZ_TRAINING:-$([ "${CI:-}" = true ] && echo 2000 || echo 200)}
kinds=${KIN_FUZZ_KINDS:-$([ "${CI:-}" = true ] && echo 500 || echo 150)}
unset KIN_FUZZ_COUNT KIN_FUZZ_SEED # pytest runs a few programs of its own
export KINTSUGI_KERNELS=0 KINTSUGI_VERIFY=1 # tests/conftest.py says why
turn=${KIN_TURN:-20778}
cases=${KIN_CORPUS_SHARE:-$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % 3 + 1))/3}
unset KIN_CORPUS_SHARE
failed=()

part() { # part NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    echo "-- $name"
    "$@" || failed+=("$name")
    echo "-- $name: $((SECONDS - start)) s"
}

fuzz() {
    local half=$((count / 2)) first second status=0
    "$python" tests/diff/fuzz_programs.py --seed "$seed" --count "$half" &
    first=$!
    "$python" tests/diff/fuzz_programs.py --seed $((seed + half)) --count $((count - half)) &
    second=$!
    wait "$first" || status=1
    wait "$second" || status=1
    return $status
}

fuzz_training() {
    local half=$((training / 2)) status=0
    "$python" tests/diff/fuzz_training.py --seed "$seed" --count "$half" &
    local steps=$!
    "$python" tests/diff/fuzz_training.py --seed $((seed + half)) --count $((training - half)) --kernels || status=1
    wait "$steps" || status=1
    return $status
}

fuzz_kernels() {
    local program=$build-c/tests/c/test_fuzz_kernels half=$((kernels / 2)) status=0
    "$program" "$seed" "$half" &
    "$program" $((seed + half)) $((kernels - half)) || [ $? -eq 77 ] || status=1
    wait $! || [ $? -eq 77 ] || status=1
    return $status
}

# Sizes that vary: random programs, and the quick shares of the benchmarks (results, compilations and recordings; no times).
fuzz_sizes() {
    local third=$((sizes / 3)) sixth=$((sizes / 6)) status=0
    KINTSUGI_KERNELS=1 "$python" tests/kernels/fuzz_sizes.py --seed "$seed" --count "$third" &
    KINTSUGI_KERNELS=1 "$python" tests/kernels/fuzz_sizes.py --seed $((seed + third)) --count $((sizes - third - 2 * sixth)) || status=1
    wait $! || status=1
    "$python" tests/diff/fuzz_programs.py --sizes --seed "$seed" --count "$sixth" &
    "$python" tests/diff/fuzz_programs.py --sizes --engine kintsugi_kernels --seed $((seed + sixth)) --count "$sixth" || status=1
    wait $! || status=1
    return $status
}

bench_sizes() {
    local status=0
    KINTSUGI_KERNELS=1 "$python" bench/sizes.py --quick || status=1
    ! "$python" -c 'import transformers' 2>/dev/null || KINTSUGI_KERNELS=1 "$python" bench/generate.py --quick gpt2 llama --ways greedy beams || status=1
    return $status
}

# An extension of its own, in which allocations, calls of LLVM and writes to disk fail, runs another share of the corpus in each turn.
faults() {
    make faults PYTHON="$python" BUILD="$build" ARGS="--corpus $((turn % 200 + 1))/200 --most 6"
}

aarch64() {
    local status=0
    PYTHON=$python tools/test_aarch64.sh "$build-aarch64" || status=$?
    [ $status -ne 77 ] || echo "aarch64: skipped, what it needs cannot be installed here"
    [ $status -eq 0 ] || [ $status -eq 77 ]
}

with_kernels() {
    local first=$((1000 + turn % 1000 * 40)) status=0
    KIN_SHARD=$((turn % 8 + 1))/8 "$python" -m pytest -q tests/corpus/test_corpus.py --engine=kintsugi_kernels -k behaves_as_eager &
    local corpus=$!
    "$python" tests/diff/fuzz_programs.py --engine kintsugi_kernels --seed "$first" --count 40 || status=1
    wait "$corpus" || status=1
    "$python" tests/kernels/op_suite.py --samples 1 --shard $((turn % 60))/60 || status=1
    "$python" tests/kernels/op_suite.py --grad --samples 1 --shard $((turn % 60))/60 || status=1
    return $status
}

folders=()
for folder in tests/{py,diagnostics,kernels,shape,lower,training,guardeval,corpus,diff,models,rules,oracle,seeds}; do
    [ -d "$folder" ] && folders+=("$folder")
done

part "other versions of CPython" "$python" tools/check_versions.py
part "watcher" "$python" tests/watch/run.py "$build-watch"
part "examples of graph breaks" "$python" tools/check_breaks.py --run "$python"
part "$count random programs" fuzz
part "$training random programs that train" fuzz_training
part "$kinds programs over kinds of tensors" env KINTSUGI_STEP_ASIDE=0 "$python" tests/diff/fuzz_tensor_kinds.py --seed "$seed" --count "$kinds"
part "$kernels random tensor programs" fuzz_kernels
part "$sizes random programs over varying sizes" fuzz_sizes
[ "${CI:-}" != true ] || part "benchmarks of varying sizes" bench_sizes
part "with kernels" with_kernels
[ "${CI:-}" != true ] || part "failures in a share of the corpus" faults
[ "${CI:-}" != true ] || part "aarch64" aarch64
[ ${#failed[@]} -eq 0 ] || printf 'FAILED before pytest: %s\n' "${failed[@]}"
# One worker for each core, where pytest-xdist is there; the tests of a file stay together and in their order.
workers=()
"$python" -c 'import xdist' 2>/dev/null && workers=(-n "$(env -u OMP_NUM_THREADS nproc)" --dist loadfile)
KIN_CORPUS_SHARE=$cases "$python" -m pytest -q "${workers[@]}" "${folders[@]}"
status=$?
[ ${#failed[@]} -eq 0 ] && exit $status
exit 1
