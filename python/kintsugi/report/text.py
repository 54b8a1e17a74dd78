"""Pieces of HTML that all parts of the report are made of."""

import html
import re


def esc(value):
    return html.escape(str(value), quote=True)


def prose(value):
    """A sentence with `code` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", esc(value))


def table(label, head, rows, caption=""):
    """head: [(title, is it a number)]; rows: lists of cells, already HTML. It can be scrolled where the window is narrow."""
    def mark(number):
        return " class=\"n\"" if number else ""

    def wide(cell):
        return " class=\"w\"" if len(str(cell)) > 40 and " " in str(cell) else ""
    titles = "".join(f"<th scope=\"col\"{mark(number)}>{esc(title)}</th>" for title, number in head)
    body = "".join("<tr>" + "".join(f"<td{mark(number) or wide(cell)}>{cell}</td>" for cell, (_, number) in zip(row, head)) + "</tr>" for row in rows)
    told = f"<caption>{esc(caption)}</caption>" if caption else ""
    return (f"<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{esc(label)}\"><table>{told}<thead><tr>{titles}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>")
