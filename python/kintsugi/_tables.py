"""Tables for the terminal, drawn by Rich. In a pipe or a file they are plain text, and no line is cut or wrapped."""

import sys


def table(head, rows, right=(), title=None):
    """A Rich table; `right`: numbers of the columns that are aligned to the right. A shorter row spans what is left of the line."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(*[""] * len(head), box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=title, title_justify="left", show_header=any(head))
    for number, (column, name) in enumerate(zip(made.columns, head)):
        column.header = Text(name)
        column.justify = "right" if number in right else "left"
        column.overflow = "fold"
    for row in rows:
        made.add_row(*[Text(str(cell)) for cell in row])
    return made


def render(made, width=10_000):
    """The table as plain text."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(made)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    return "\n".join(line for line in lines if line)


def show(made, file=None):
    """Prints the table: in a terminal as wide as that is, elsewhere as wide as it needs to be."""
    from rich.console import Console

    file = file or sys.stdout
    if file.isatty():
        Console(file=file).print(made)
    else:
        file.write(render(made) + "\n")
