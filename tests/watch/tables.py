"""Compares src/core/bytecode with the `dis` module of the running interpreter: every opcode's stack effect, and the
decoding of every code object of many standard-library modules. Argument: the folder of the compiled `watchcheck`.
"""

import dis
import glob
import opcode
import os
import sys
import types

# Where the running stack differs from the compiler's bookkeeping; see effects.def.
OVERRIDES = {"RETURN_GENERATOR", "SEND"} | ({"PRECALL", "CALL"} if sys.version_info < (3, 12) else set())


def check_effects(watchcheck):
    wrong, count = [], 0
    for name, number in opcode.opmap.items():
        if number >= 256 or name.startswith("INSTRUMENTED_"):
            continue
        for oparg in (0, 1, 2, 3, 4, 5, 7, 8, 255, 260):
            for jump in (False, True):
                got_name, got = watchcheck.effect(number, oparg, jump)
                want = dis.stack_effect(number, oparg if number >= opcode.HAVE_ARGUMENT else None, jump=jump)
                count += 1
                if got_name != name or (name not in OVERRIDES and got != want):
                    wrong.append(f"{name} {oparg} jump={jump}: {got_name} {got}, dis says {want}")
    return count, wrong


def all_codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from all_codes(const)


def dis_instructions(code):
    """(name, offset of the first prefix, offset, oparg) as dis sees it."""
    first = None
    for i in dis.get_instructions(code):
        if i.opname == "EXTENDED_ARG":
            first = i.offset if first is None else first
        elif i.opname != "CACHE":
            yield i.opname, i.offset if first is None else first, i.offset, i.arg or 0
            first = None


def check_code(watchcheck, code, wrong):
    instrs, handlers = watchcheck.decode(code.co_code, code.co_exceptiontable)
    where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    takes_arg = {n for n, o in opcode.opmap.items() if o >= opcode.HAVE_ARGUMENT}
    if [(n, o, at, a if n in takes_arg else 0) for n, o, at, a, _, _ in instrs] != list(dis_instructions(code)):
        wrong.append(f"{where}: instructions differ")
    if [i[4] for i in instrs[:-1]] != [i[1] for i in instrs[1:]] or instrs[-1][4] != len(code.co_code):
        wrong.append(f"{where}: gaps between instructions")
    table = [(e.start, e.end, e.target, e.depth, int(e.lasti)) for e in dis.Bytecode(code).exception_entries]
    if handlers != table:
        wrong.append(f"{where}: exception tables differ")
    if max(i[5] for i in instrs) > code.co_stacksize:
        wrong.append(f"{where}: deeper than co_stacksize")
    return len(instrs)


def check_modules(watchcheck):
    wrong, codes, count = [], 0, 0
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py"))):
        if not os.path.exists(path):  # a link to a file of the root that the interpreter was taken from
            continue
        with open(path, "rb") as f:
            module = compile(f.read(), os.path.basename(path), "exec", dont_inherit=True)
        for code in all_codes(module):
            codes += 1
            count += check_code(watchcheck, code, wrong)
    return codes, count, wrong


def check_bad_code(watchcheck):
    """Bytes that are no program are refused, not read past."""
    good = check_effects.__code__.co_code
    wrong = []
    for n in range(0, len(good) - 2, 2):
        try:
            watchcheck.decode(good[: n + 2], b"")
        except ValueError:
            continue
        last = good[n]
        if opcode.opname[last] not in ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "JUMP_BACKWARD", "RAISE_VARARGS", "JUMP_FORWARD"):
            wrong.append(f"a program cut off at {n} is accepted")
    return wrong


def main():
    sys.path.insert(0, sys.argv[1])
    import watchcheck

    effects, wrong = check_effects(watchcheck)
    codes, instrs, more = check_modules(watchcheck)
    wrong += more + check_bad_code(watchcheck)
    for text in wrong[:40]:
        print("   ", text)
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"bytecode of {version}: {effects} stack effects, {codes} codes, {instrs} instructions compared with dis, {len(wrong)} differ")
    return 1 if wrong or codes < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
