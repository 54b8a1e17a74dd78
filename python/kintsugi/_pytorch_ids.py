"""What becomes here of PyTorch's ids for graph breaks: one that ends a graph here as well is named by a row of the table of breaks, all others are in
pytorch_ids.toml, with the reason why they do not."""

import dataclasses
import functools
import pathlib
import tomllib


@dataclasses.dataclass(frozen=True)
class Group:
    """Ids that do not break here for one reason: `title`, the reason as `text`, and `ids`, from id to PyTorch's title."""

    title: str
    text: str
    ids: dict


@functools.cache
def groups():
    read = tomllib.loads((pathlib.Path(__file__).parent / "pytorch_ids.toml").read_text(encoding="utf-8"))
    return tuple(Group(group["title"], group["text"], group["ids"]) for group in read.values())


def find(name):
    """(title, reason) of an id that does not break here, else None."""
    for group in groups():
        if name in group.ids:
            return group.ids[name], group.text
    return None


def is_id(name):
    return name.startswith("GB") and name[2:].isdigit()
