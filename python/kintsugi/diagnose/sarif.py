"""Diagnoses as SARIF 2.1.0, which code review tools show beside the lines."""

import os
import pathlib

from .. import __version__
from . import show

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def log(diagnoses):
    """The whole file as plain objects."""
    rules, results = {}, []
    for diagnosis in diagnoses:
        for cause in diagnosis.causes:
            rule = cause.id or f"kintsugi-{cause.kind}"
            rules.setdefault(rule, _rule(rule, cause))
            results.append(_result(rule, cause, diagnosis))
    driver = {"name": "Kintsugi", "version": __version__, "rules": list(rules.values())}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]}


def _rule(rule, cause):
    found = {"id": rule, "name": cause.why or cause.kind, "shortDescription": {"text": cause.title if cause.id else cause.kind},
             "fullDescription": {"text": cause.explanation or cause.title}}
    if cause.hints:
        found["help"] = {"text": "\n".join(cause.hints)}
    if cause.own_page or cause.page:
        found["helpUri"] = cause.own_page or cause.page
    return found


def _result(rule, cause, diagnosis):
    price = f" It costs {show.us(cause.price_us)} of each call" + (f" ({cause.share:.0%})." if cause.share is not None else ".") \
        if cause.price_us is not None else ""
    found = {"ruleId": rule, "level": "warning" if cause.kind != "break" or (cause.share or 0) >= 0.05 else "note",
             "message": {"text": f"{cause.title}.{price} {cause.explanation}".strip()},
             "locations": [_location(*cause.user[:2], cause.user_columns if cause.library else cause.columns)],
             "partialFingerprints": {"kintsugi/v1": f"{rule}:{os.path.basename(cause.user[0])}:{show.linecache.getline(*cause.user[:2]).strip()}"},
             "properties": {"function": diagnosis.name, "price_us": cause.price_us, "share": cause.share, "how": cause.how, "count": cause.count}}
    related = [(file, line, f"the data comes from here: {code}") for file, line, code in cause.origin]
    if cause.library:
        related.append((cause.filename, cause.line, f"the line of {cause.library} that breaks the graph"))
    if related:
        found["relatedLocations"] = [_location(file, line) | {"message": {"text": text}} for file, line, text in related]
    if cause.patch:
        found["fixes"] = [_fix(cause.patch)]
    return found


def _uri(filename):
    path = os.path.abspath(filename)
    relative = os.path.relpath(path)
    return pathlib.PurePath(relative).as_posix() if not relative.startswith("..") else pathlib.Path(path).as_uri()


def _location(filename, line, columns=(-1, -1, -1)):
    region = {"startLine": max(1, line)}
    first, last = show.characters(filename, line, columns)
    if first is not None:
        region |= {"startColumn": first + 1, "endColumn": max(last, first + 1) + 1}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(filename)}, "region": region}}


def _fix(patch):
    text = "".join(line + "\n" for line in patch.lines)
    region = {"startLine": patch.first, "startColumn": 1, "endLine": patch.last + 1, "endColumn": 1}
    return {"description": {"text": patch.caution or "proposed change"},
            "artifactChanges": [{"artifactLocation": {"uri": _uri(patch.filename)}, "replacements": [{"deletedRegion": region, "insertedContent": {"text": text}}]}]}
