"""Writes the tables of docs/design/tiering.md from src/core/tier/tier.def; --check: are they as they should be, and do the defaults of
kintsugi.config agree with their rows?

What stands between the marks of a group is replaced; everything else on the page is written by hand.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/core/tier/tier.def"
PAGE = ROOT / "docs/design/tiering.md"
CONFIG = ROOT / "python/kintsugi/_config.py"
ROW = re.compile(r'^(COUNT|REAL)\((\w+), (\w+), ([^"]+), "([^"]*)", "([^"]*)", "([^"]*)"\)$', re.M)


def rows():
    text = TABLE.read_text()
    found = [dict(zip(("kind", "group", "name", "value", "unit", "setting", "why"), m.groups())) for m in ROW.finditer(text)]
    lines = sum(line.startswith(("COUNT(", "REAL(")) for line in text.splitlines())
    if lines != len(found):
        sys.exit(f"{TABLE.name}: {lines} rows, {len(found)} understood")
    return found


def number(text):
    """The value of a row: a literal, or one shifted."""
    base, _, shift = text.partition("<<")
    return ast.literal_eval(base.strip()) << int(shift) if shift else ast.literal_eval(text)


def shown(row):
    value = number(row["value"])
    if row["unit"] == "ns":
        return next(f"{value / size:g} {name}" for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
                    if value >= size or size == 1)
    return f"{value:,} {row['unit']}" if row["kind"] == "COUNT" else f"{value:g} ({row['unit']})"


def table(group, of_group):
    lines = ["| row | value | what it means | setting |", "|---|---|---|---|"]
    for row in of_group:
        setting = f"`{row['setting']}`" if row["setting"] else ""
        lines.append(f"| `{row['name']}` | {shown(row)} | {row['why']} | {setting} |")
    return f"<!-- {group} -->\n" + "\n".join(lines) + f"\n<!-- /{group} -->"


def page(text, all_rows):
    for group in dict.fromkeys(row["group"] for row in all_rows):
        new = table(group, [row for row in all_rows if row["group"] == group])
        text, count = re.subn(f"<!-- {group} -->.*?<!-- /{group} -->", lambda _: new, text, flags=re.S)
        if count != 1:
            sys.exit(f"{PAGE.name}: {count} places for group {group}")
    return text


def defaults():
    """{name: default} of the settings that are literals."""
    tree = ast.parse(CONFIG.read_text())
    table_of = next(node.value for node in tree.body
                    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_ROWS")
    pairs = zip(table_of.keys, table_of.values)
    return {key.value: value.elts[0].value for key, value in pairs if isinstance(value.elts[0], ast.Constant)}


def disagreements(all_rows):
    have = defaults()
    for row in all_rows:
        if row["setting"] in have and have[row["setting"]] != number(row["value"]):
            yield f"{row['name']} is {row['value']}, kintsugi.config.{row['setting']} is {have[row['setting']]}"


def main():
    all_rows = rows()
    before = PAGE.read_text()
    after = page(before, all_rows)
    problems = list(disagreements(all_rows))
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(after)
    elif after != before:
        problems.append(f"{PAGE.name} is not as tools/gen_tiering.py writes it")
    print("\n".join(problems) or "tiering: ok")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
