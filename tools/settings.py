"""`make settings`: docs/settings.md, every name of PyTorch's own settings and what becomes of it (python/kintsugi/_settings.py)."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from kintsugi import _settings  # noqa: E402

HEAD = """# PyTorch's own settings

Made by `make settings` from the table in `python/kintsugi/_settings.py`, for the names that PyTorch {version} has. A setting that acts
takes effect while Kintsugi serves `torch.compile` (`kintsugi.install()`). One that is accepted without effect says so once, in a record of
the logger `kintsugi`, when a program sets it to a value other than its default. One that is refused raises when it is set.
"""


def page(version):
    lines = HEAD.format(version=version).splitlines()
    for owner in _settings.TABLE:
        groups = {}
        for name in _settings.names(owner):
            groups.setdefault(_settings.find(owner, name), []).append(name)
        lines += ["", f"## {owner}", "", "| names | what it does here | why |", "|---|---|---|"]
        order = (_settings.ACTS, _settings.REFUSED, _settings.NONE)
        for (status, why), names in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[1])):
            lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {status} | {why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import torch

    (ROOT / "docs" / "settings.md").write_text(page(torch.__version__.partition("+")[0]))
