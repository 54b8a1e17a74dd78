"""Makes the documentation site: python tools/make_docs.py BUILD_FOLDER [--sources-only]

Pages that exist as text (the user's guide, measured tables, design) are taken as they are; a page for each reason of the table of graph breaks,
with its example, and a page for each group of PyTorch's ids are made from the tables that the engine itself uses. BUILD_FOLDER/site/index.html is the
result: it needs no network and can be searched from file://. mkdocs-material draws it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

GUIDE = [("Install", "install"), ("First speed-up", "first"), ("Graph breaks", "breaks"), ("Debugging step by step", "debug"), ("The report", "report"), ("Training", "training"), ("Varying sizes", "sizes"),
         ("In continuous integration", "ci"), ("Troubleshooting", "troubleshooting")]
MEASURED = [("Speed", "bench"), ("Cost of a call", "overhead"), ("Operators", "ops"), ("Libraries", "libraries"), ("Four texts on torch.compile", "documents"),
            ("Versions", "versions"), ("Settings", "settings")]
CATEGORIES = {"data": "Decisions on data", "opaque": "Code that cannot be followed", "requested": "Breaks that the program asks for", "unsupported": "Not supported",
              "python": "Python constructs", "effect": "Effects that strict mode reports", "limit": "Limits and events"}


def price_of(why, prices):
    """What the break costs in its example, in words; "": it was not measured (tools/break_prices.py)."""
    told = []
    for size, of in (("small", "with its own tensors"), ("large", f"with tensors {prices['larger']} times as large")):
        times = prices["reasons"].get(why, {}).get(size)
        if times:
            broken, fixed = times
            cost = f"the break costs {us(broken - fixed)}" if broken > 1.02 * fixed else "the break costs nothing, for the rewrite takes as long or longer"
            told.append(f"{of}, a call takes {us(broken)} with the break and {us(fixed)} without it: {cost}")
    return f"In the example above {'; '.join(told)}. ({prices['note']}.)" if told else ""


def us(value):
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.2g} µs" if value < 10 else f"{value:.0f} µs"


def break_page(row, stock_titles, prices):
    """The page of one row of the table."""
    out = [f"# {row['type']}", "", f"`{row['why']}` · {row['id']} · {CATEGORIES.get(row['category'], row['category'])}", "", "## What happened", "", row["explanation"], ""]
    from kintsugi import _examples

    example = _examples.parts(row["why"])
    if example and example[0]:
        out += ["## Example", "", "```python", example[0], "```", ""]
    if row["fix"] or row["hints"] or (example and example[1]):
        out += ["## What to do", ""]
        out += [f"**Fix:** {row['fix']}.", ""] if row["fix"] else []
        out += [f"- {hint}" for hint in row["hints"]] + [""]
        if example and example[1]:
            out += ["The example without the break:", "", "```python", example[1], "```", ""]
    price = price_of(row["why"], prices)
    out += ["## Its price", "", *([price, ""] if price else []), "What a graph break costs in your program depends on what could be fused across it. `python -m kintsugi explain script.py` measures "
            "it, in microseconds per call and as a share of the call.", ""]
    if row["stock"]:
        out += ["## PyTorch's ids", ""]
        out += [f"- [{name}](https://meta-pytorch.github.io/compile-graph-break-site/gb/{name.lower()}.html) {stock_titles.get(name, '')}".rstrip() for name in row["stock"]] + [""]
    return "\n".join(out)


def index_page(rows):
    out = ["# Reasons for graph breaks", "", "Each reason has its own page. `python -m kintsugi breaks NAME` prints the same text in a terminal; it also accepts PyTorch's ids.", ""]
    for category, title in CATEGORIES.items():
        found = [row for row in rows if row["category"] == category]
        if found:
            out += [f"## {title}", "", "| reason | what happened | PyTorch's ids |", "|---|---|---|"]
            out += [f"| [{row['why']}]({row['why']}.md) | {cell(row['explanation'])} | {' '.join(row['stock'])} |" for row in found] + [""]
    return "\n".join(out)


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def ids_page(groups, rows, titles):
    """Every id of PyTorch's, with what becomes of it here."""
    out = ["# PyTorch's ids", "", "What each id in PyTorch's registry of graph breaks means in Kintsugi. `python -m kintsugi breaks GB0142` looks one up.", "", "## Also a graph break in Kintsugi", "",
           "| id | PyTorch's title | here |", "|---|---|---|"]
    named = sorted(((name, row) for row in rows for name in row["stock"]), key=lambda pair: pair[0])
    out += [f"| {name} | {cell(titles.get(name, ''))} | [{row['why']}]({row['why']}.md) |" for name, row in named] + [""]
    for group in groups:
        out += [f"## Not a graph break: {group.title}", "", group.text, "", "| id | PyTorch's title |", "|---|---|"]
        out += [f"| {name} | {cell(title)} |" for name, title in sorted(group.ids.items())] + [""]
    return "\n".join(out)


def stock_titles():
    """PyTorch's own titles, where the torch at hand has its registry."""
    import torch

    path = pathlib.Path(torch.__file__).parent / "_dynamo/graph_break_registry.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    # Where a title is put together at run time, the registry has the name of a variable.
    return {name: next((one["Gb_type"].strip() for one in reversed(entries) if not one["Gb_type"].startswith("_gb")), "") for name, entries in found.items()}


def write_breaks(folder):
    from kintsugi import _messages, _pytorch_ids

    rows, titles, prices = _messages.rows(), stock_titles(), json.loads((ROOT / "docs/breaks/prices.json").read_text())
    (folder / "breaks").mkdir()
    for row in rows:
        (folder / "breaks" / f"{row['why']}.md").write_text(break_page(row, titles, prices))
    (folder / "breaks/index.md").write_text(index_page(rows))
    (folder / "breaks/pytorch-ids.md").write_text(ids_page(_pytorch_ids.groups(), rows, titles))
    return sorted(row["why"] for row in rows)


def copy_texts(folder):
    """The guide, measured pages with their pictures, design pages; returns those of MEASURED that exist."""
    for name in ("guide", "design", "measurements"):
        shutil.copytree(ROOT / "docs" / name, folder / name)
    for _, name in GUIDE:  # some of the guide's pages stand beside docs/guide, for a command writes them
        if (ROOT / f"docs/{name}.md").exists() and not (folder / f"guide/{name}.md").exists():
            shutil.copy(ROOT / f"docs/{name}.md", folder / "guide")
    (folder / "measured").mkdir()
    for path in [*(ROOT / "docs").glob("*.svg"), *(ROOT / "docs").glob("*.png")]:
        shutil.copy(path, folder / "measured")
        shutil.copy(path, folder / "guide")
    there = [(title, name) for title, name in MEASURED if (ROOT / "docs" / f"{name}.md").exists()]
    for _, name in there:
        shutil.copy(ROOT / "docs" / f"{name}.md", folder / "measured")
    shutil.copy(ROOT / "docs/guide/index.md", folder / "index.md")
    (folder / "guide/index.md").unlink()
    shutil.copy(ROOT / "ARCHITECTURE.md", folder / "design/architecture.md")
    shutil.copy(ROOT / "docs/recompiles.md", folder)
    return there


def leave_network_out(site):
    """The theme asks a server for a script that lets its search run from file://; docs/theme/main.html has one of our own."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        path.write_text(re.sub(r"<script[^>]*https://unpkg[.]com/iframe-worker[^>]*></script>", "", text))


def title_of(path):
    return re.search(r"^# (.+)", path.read_text(), re.MULTILINE).group(1)


def navigation(folder, names, measured):
    guide = [{title: f"guide/{name}.md"} for title, name in GUIDE if (folder / f"guide/{name}.md").exists()]
    guide.insert(-2, {"Recompiles": "recompiles.md"})
    design = [{"Map of the sources": "design/architecture.md"}]
    design += [{title_of(path): f"design/{path.name}"} for path in sorted((folder / "design").glob("*.md")) if path.stem != "architecture"]
    design += [{"Measurements": [{title_of(path): f"measurements/{path.name}"} for path in sorted((folder / "measurements").glob("*.md"))]}]
    breaks = [{"All reasons": "breaks/index.md"}, {"PyTorch's ids": "breaks/pytorch-ids.md"}, {"Reasons": [{name: f"breaks/{name}.md"} for name in names]}]
    return [{"Kintsugi": "index.md"}, {"Guide": guide}, {"Graph breaks": breaks}, {"Measured": [{title: f"measured/{name}.md"} for title, name in measured]}, {"Design": design}]


def main(arguments):
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    build = pathlib.Path(arguments[0]).resolve()
    folder = build / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    measured = copy_texts(folder)
    names = write_breaks(folder)
    shutil.copy(ROOT / "docs/theme/kintsugi.css", folder)
    settings = {
        "site_name": "Kintsugi", "docs_dir": str(folder), "site_dir": str(build / "site"), "use_directory_urls": False,
        "theme": {"name": "material", "custom_dir": str(ROOT / "docs/theme"), "font": False, "features": ["navigation.tabs", "navigation.indexes", "navigation.top", "content.code.copy", "search.highlight"],
                  "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {"icon": "material/weather-night", "name": "Dark"}},
                              {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {"icon": "material/weather-sunny", "name": "Light"}}]},
        "plugins": [{"material/search": {"separator": r"[\s\-.,:;()`'\"\[\]/|]+"}}, "material/offline"], "markdown_extensions": ["tables", "admonition", "attr_list", "pymdownx.highlight", "pymdownx.superfences"],
        "extra_css": ["kintsugi.css"],
        "validation": {"links": {"not_found": "info", "unrecognized_links": "info", "anchors": "info"}},
        "nav": navigation(folder, names, measured),
    }
    (build / "mkdocs.yml").write_text(json.dumps(settings, indent=1))  # JSON is YAML
    if "--sources-only" in arguments:
        return 0
    status = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(build / "mkdocs.yml")]).returncode
    leave_network_out(build / "site")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
