"""The documentation site: every reason for a graph break has its page, and every id of PyTorch's is on one."""

import json
import pathlib
import subprocess
import sys

from kintsugi import _messages, _pytorch_ids

ROOT = pathlib.Path(__file__).resolve().parents[2]


def leaves(item):
    if isinstance(item, str):
        return [item]
    return [leaf for part in (item.values() if isinstance(item, dict) else item) for leaf in leaves(part)]


def test_pages_are_made_from_the_tables(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "tools/make_docs.py"), str(tmp_path), "--sources-only"], check=True)
    breaks = tmp_path / "docs/breaks"
    for row in _messages.rows():
        text = (breaks / f"{row['why']}.md").read_text()
        assert row["explanation"] in text and row["id"] in text
        if (ROOT / f"docs/breaks/examples/{row['why']}.py").exists():
            assert "```python" in text and "from support" not in text
    prices = json.loads((ROOT / "docs/breaks/prices.json").read_text())["reasons"]
    assert set(prices) <= {row["why"] for row in _messages.rows()} and len(prices) >= 35
    for why in prices:  # what it costs in its example, measured
        assert "the break costs" in (breaks / f"{why}.md").read_text()
    assert "_gb_type" not in (breaks / "DATA_DEPENDENT_BRANCH.md").read_text()  # a title that PyTorch's registry does not have
    assert (tmp_path / "docs/guide/sizes.md").exists()
    ids = (breaks / "pytorch-ids.md").read_text()
    for group in _pytorch_ids.groups():
        assert all(f"| {name} |" in ids for name in group.ids)
    settings = json.loads((tmp_path / "mkdocs.yml").read_text())
    for page in leaves(settings["nav"]):
        assert (tmp_path / "docs" / page).exists(), page
