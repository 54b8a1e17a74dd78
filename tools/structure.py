"""Measures the structure of src/: how large it is, what includes what in circles, where one fact stands in several places.

    python tools/structure.py                  the working tree
    python tools/structure.py 875f5e5 HEAD     commits, side by side, as a table

docs/measurements/structure.md keeps such a table and says what the rows mean.
"""

import os
import re
import subprocess
import sys

import check_layers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = (".c", ".h", ".def", ".inc")
LONG = 800
STRINGS = re.compile(r"\b(?:strcmp|strncmp|strstr|PyUnicode_CompareWithASCIIString|PyUnicode_EqualToUTF8|kin_text_is|rec_in_list)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=True).stdout


def read(commit):
    """Maps the path of each source file below src/, and of ARCHITECTURE.md, to its text; None: the working tree."""
    if commit is None:
        names = git("ls-files", "src", "ARCHITECTURE.md").split()
        texts = {}
        for name in names:
            if os.path.exists(os.path.join(ROOT, name)):
                with open(os.path.join(ROOT, name), errors="replace") as f:
                    texts[name] = f.read()
        return texts
    names = git("ls-tree", "-r", "--name-only", commit, "src", "ARCHITECTURE.md").split()
    wanted = [name for name in names if name.endswith((*CODE, ".md"))]
    asked = "".join(f"{commit}:{name}\n" for name in wanted)
    out = subprocess.run(["git", "-C", ROOT, "cat-file", "--batch"], input=asked.encode(), capture_output=True, check=True).stdout
    texts, at = {}, 0
    for name in wanted:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        texts[name] = out[end + 1:end + 1 + size].decode(errors="replace")
        at = end + size + 2
    return texts


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def header_circles(files):
    """Sizes of the groups of files that include each other."""
    arrows = {path: {name for name in INCLUDE.findall(text) if name in files} for path, text in files.items()}
    return [len(group) for group in check_layers.circles(arrows) if len(group) > 1]


def listed(files, names, most):
    """Files that name at least `most` of `names`, as quoted text or as arguments of a macro that makes a table."""
    found = []
    for path, text in files.items():
        quoted = set(re.findall(r'"([A-Za-z_0-9.]+)"', text))
        words = {part for one in quoted for part in (one, one.removeprefix("aten.").split(".")[0])}
        words |= set(re.findall(r"^[A-Z_]+\(([a-z_0-9]+),", text, re.M))
        if len(words & names) >= most:
            found.append(path)
    return sorted(found)


def step_switches(files, kinds):
    """Files outside the tables with a switch or a chain over six kinds of steps or more."""
    found = []
    for path, text in files.items():
        for body in re.split(r"^}", text, flags=re.M):
            if len(set(re.findall(r"(?:case|== )\s*KIN_STEP_([A-Z_]+)", body)) & kinds) >= 6:
                found.append(path)
                break
    return sorted(found)


def opcode_mentions(files, opcodes):
    """Mentions of CPython's opcodes where rules and replay stand."""
    names = re.compile(r"\bKIN_OP_[A-Z_]+|\bOP\((?:%s)\)" % "|".join(opcodes))
    away = ("core/bytecode/", "py/compat/", "py/watch/")
    return sum(len(names.findall(text)) for path, text in files.items() if not path.startswith(away))


def measure(commit, now):
    texts = read(commit)
    files = {name[4:]: text for name, text in texts.items() if name.startswith("src/") and name.endswith(CODE) and "/gen/" not in name}
    code = {name: without_comments(text) for name, text in files.items()}
    sources = {name: text for name, text in files.items() if name.endswith((".c", ".h"))}
    lines = {name: text.count("\n") for name, text in files.items()}
    folders = {}
    for name in sources:
        folders.setdefault(check_layers.folder_of(name), []).append(name)
    arrows = {folder: {check_layers.folder_of(to) for name in names for to in INCLUDE.findall(files[name])
                       if to.startswith(("core/", "py/"))} - {folder} for folder, names in folders.items()}
    largest = max(folders, key=lambda folder: len(folders[folder]))
    functions = [len(found.splitlines()) for text in sources.values() for found in re.findall(r"^\{\n.*?^\}", text, re.M | re.S)]
    glossary = texts.get("ARCHITECTURE.md", "").partition("## Glossary")[2].partition("\n## ")[0]
    circles = header_circles(sources)
    return {
        "lines in src/ (generated ones aside)": sum(lines.values()),
        "... of them comments and blank": sum(lines.values()) - sum(1 for text in code.values() for line in text.splitlines() if line.strip()),
        "files": len(files),
        f"files above {LONG} lines": sum(n > LONG for n in lines.values()),
        "longest file": max(lines.values()),
        "functions": len(functions),
        "longest function": max(functions),
        "folders": len(folders),
        "largest folder (source files)": f"{len(folders[largest])} ({largest})",
        "circles of folders": len(check_layers.circles(arrows)),
        "circles of files (the largest)": f"{len(circles)} ({max(circles, default=0)})",
        "files that list operators of ATen": len(listed(files, now["operators"], 20)),
        "files that list C callables": len(listed(files, now["callables"], 12)),
        "switches over kinds of steps": len(step_switches(code, now["steps"])),
        "decisions by the text of a name or message": sum(len(STRINGS.findall(text)) for text in code.values()),
        "names of opcodes outside bytecode, compat, watch": opcode_mentions(code, now["opcodes"]),
        "tests of r->stopped": sum(len(re.findall(r"->stopped\b", text)) for text in code.values()),
        "PY_VERSION_HEX": sum(len(re.findall(r"\bPY_VERSION_HEX\b", text)) for text in code.values()),
        "glossary, words of our own": max(0, len(re.findall(r"^\|", glossary, re.M)) - 2),
    }


def vocabulary():
    """The names that count as operators, callables, kinds of steps and opcodes: those of today's tables."""
    texts = read(None)
    return {
        "operators": set(re.findall(r"^ATEN\((\w+),", texts["src/core/aten/aten.def"], re.M)),
        "callables": {name.split(".")[-1] for name in re.findall(r'^CALLABLE\("[^"]+", "([^"]+)"', texts["src/core/trace/callables.def"], re.M)},
        "steps": set(re.findall(r"^STEP\(([A-Z_]+),", texts["src/core/trace/steps.def"], re.M)),
        "opcodes": re.findall(r"^NATIVE\(([A-Z_]+),", texts["src/core/bytecode/canon.def"], re.M),
    }


def main():
    commits = sys.argv[1:] or [None]
    now = vocabulary()
    columns = [measure(commit, now) for commit in commits]
    print("| | " + " | ".join(commit or "working tree" for commit in commits) + " |")
    print("|---|" + "---|" * len(commits))
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(str(column[row]) for column in columns) + " |")


if __name__ == "__main__":
    main()
