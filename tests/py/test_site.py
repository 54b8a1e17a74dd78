"""The documentation site: every reason for a graph break has its page, and every id of PyTorch's is on one."""

import importlib.util
import json
import pathlib
import subprocess
import sys

from kintsugi import _messages, _pytorch_ids

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools/make_docs.py")
make_docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_docs)


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
    assert "recompiles.md" in leaves(settings["nav"])


def test_pages_ask_no_server(tmp_path):
    (tmp_path / "a.html").write_text('<p>text</p><script src="https://unpkg.com/iframe-worker/shim"></script><script src="search.js"></script>')
    make_docs.leave_network_out(tmp_path)
    assert (tmp_path / "a.html").read_text() == '<p>text</p><script src="search.js"></script>'


def test_the_command_shows_the_example_before_and_after(capsys):
    from kintsugi import cli

    assert cli.main(["breaks", "DATA_DEPENDENT_BRANCH"]) == 0
    out = capsys.readouterr().out
    assert "  Example:\n\n    " in out and "  Without the graph break:\n\n" in out and "torch.where" in out and "def fixed" in out
    assert "support" not in out and "page on it: python -m" not in out


def test_recompiles_link_to_their_page(tmp_path, monkeypatch):
    event = {"name": "f", "filename": "m.py", "line": 2, "failures": "- n == 4", "limit": 8}
    for record in (_messages.recompile_record, _messages.limit_record):
        monkeypatch.setenv("KINTSUGI_DOCS", "https://docs.example/k/")
        assert "What to do about" in record(event) and "https://docs.example/k/recompiles.html\n" in record(event) + "\n"
        monkeypatch.setenv("KINTSUGI_DOCS", str(tmp_path))
        assert "`python -m kintsugi explain SCRIPT`" in record(event)


def test_messages_link_to_their_page(tmp_path, monkeypatch):
    """To ours, beside PyTorch's: in the site, or to the command that shows it."""
    for row in _messages.rows():
        monkeypatch.setenv("KINTSUGI_DOCS", "https://docs.example/k/")
        assert f"\n  Kintsugi's page on it: https://docs.example/k/breaks/{row['why']}.html\n" in _messages.break_block(row) + "\n"
        monkeypatch.setenv("KINTSUGI_DOCS", str(tmp_path))
        assert f"\n  Kintsugi's page on it: python -m kintsugi breaks {row['id']}\n" in _messages.break_block(row) + "\n"
        assert not row["stock"] or f"please visit: {_messages.stock_page(row)}" in _messages.break_block(row)
    (tmp_path / "breaks").mkdir()
    (tmp_path / "breaks/TENSOR_ITEM.html").write_text("")
    assert _messages.own_page("TENSOR_ITEM") == (tmp_path / "breaks/TENSOR_ITEM.html").as_uri()
