"""`kintsugi debug SCRIPT | module:fn`: finds graph breaks, orders them by what they cost, tries the fix that fits each one, and measures what was gained.

A fix is kept if the break is gone, no other came in its place, and the program's calls give the same values. Files are changed by --apply only. The
work is kept in a folder: the same command goes on where it was left, or shows what was found.
"""

import json
import os

from . import add_target, at_least


def add(commands):
    parser = commands.add_parser("debug", help="find graph breaks, try fixes, check values, measure: the whole way", description=__doc__)
    parser.add_argument("--apply", action="store_true", help="write the fixes that hold to the program's files")
    parser.add_argument("--json", metavar="FILE", help="write all that was found and tried to FILE (-: to the standard output, in place of the text)")
    parser.add_argument("--fullgraph", action="store_true", help="exit status 1 if a graph break is left")
    parser.add_argument("--max-fixes", type=at_least(0), metavar="N", help="fixes that are tried now; the same command tries the next ones")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever was found before")
    parser.add_argument("--strict-breaks", action="store_true", help="print, logging, ... count as graph breaks")
    parser.add_argument("--repeat", action="store_true", help="call functions again whose calls have effects outside of the process, too")
    parser.add_argument("--seconds", type=at_least(0.01, float), default=2.0, help="of measuring (2)")
    parser.add_argument("-o", "--output", metavar="DIR", default="kintsugi-debug", help="folder of the state and the patch (kintsugi-debug)")
    add_target(parser)


def run(options):
    from kintsugi.diagnose import debug, observe, screen

    if options.fresh:
        debug.forget(options.output)
    where = options.target.rpartition(":")[0] or options.target
    if where.endswith(".py"):
        observe.need_script(where)
    with screen.progress() as tell:
        job = debug.Job(options.target, options.args, options.inputs, strict=options.strict_breaks, repeat=options.repeat, folder=options.output,
                        seconds=options.seconds, tell=tell)
        job.load()
        job.work(options.max_fixes)
        applied = job.apply() if options.apply and job.record["changed"] else []
    _tell(job, applied, options)
    if not job.record["before"]:
        return 2
    return 1 if options.fullgraph and job.breaks("after") else 0


def _tell(job, applied, options):
    from kintsugi.diagnose import show

    patch = job.write_patch() if job.record["changed"] and not applied else ""
    if options.json:
        text = json.dumps(as_dict(job, patch, applied), indent=1)
        if options.json == "-":
            print(text)
            return
        with open(options.json, "w") as file:
            file.write(text + "\n")
    show.put(lines(job, patch, applied))


def as_dict(job, patch, applied):
    """What --json gives; docs/guide/debug.md describes it."""
    fixes = [{"outcome": one["outcome"], "reason": one.get("reason", ""), "values": one["values"], "cause": one["cause"], "diff": one["cause"]["patch"]["diff"]}
             for one in job.record["attempts"]]
    left = [{"function": name, "next": advice(cause), "worth_it": _is_worth(cause), **cause} for name, cause in job.causes("after")]
    return {"version": 1, "target": job.task["target"], "done": job.record["done"], "resumed": job.resumed, "breaks_before": job.breaks("before"),
            "breaks_after": job.breaks("after"), "detect": job.record["before"], "fixes": fixes, "left": left, "measured": job.record["measured"],
            "patch": patch, "diff": job.diff() if not applied else "", "applied": applied}



# ---- as text ----


def lines(job, patch, applied):
    """[(text, style)]."""
    yield from _detected(job)
    if not job.record["before"]:
        return
    yield from _tried(job)
    yield from _left(job)
    yield from _measured(job)
    yield "", ""
    if applied:
        yield f"written to {', '.join(map(os.path.relpath, applied))}", "bold green"
    elif patch:
        yield f"all fixes that hold: {patch} (`git apply -p0 {patch}`, or this command with --apply)", "bold"
    if not job.record["done"]:
        yield "more fixes can be tried: the same command goes on from here", "bold"


def _detected(job):
    from kintsugi.diagnose import show

    before = job.record["before"]
    yield "1. Detect" + (" (from the last run; --fresh begins anew)" if job.resumed else ""), "bold"
    if not before:
        yield "   Nothing was compiled: no function that torch.compile or kintsugi.compile returned was called.", ""
        return
    for one in before:
        verdict = one["verdict"]
        speed = f", {verdict['speedup']:.2f}x as fast as eager ({show.us(verdict['compiled_us'])})" if verdict["speedup"] else ""
        yield f"   {one['name']} ({show.place(one['filename'], one['line'])}): {show.count(one['breaks'], 'graph break')}, {show.count(one['graphs'], 'graph')}{speed}", ""
        if verdict["note"]:
            yield f"   {verdict['note']}", "dim"
        if verdict["warning"]:
            yield f"   {verdict['warning']}", "yellow"
    causes = job.causes("before")
    if causes:
        yield "", ""
        yield "2. Diagnose: what costs most comes first", "bold"
    for _, cause in causes:
        times = f", {cause['count']} times in a call" if cause["kind"] in ("break", "read") and cause["count"] > 1 else ""
        yield f"   {_price(cause):>23}  {show.place(*cause['user'][:2])}: {cause['title']}{times}  [{cause['id'] or cause['kind']}]", "" if _is_worth(cause) else "dim"


def _price(cause):
    from kintsugi.diagnose import show

    if cause["price_us"] is None:
        return "not priced"
    return show.us(cause["price_us"]) + (f" ({cause['share']:.0%})" if cause["share"] is not None else "") + (" uncertain" if cause["how"] == "uncertain" else "")


def _tried(job):
    from kintsugi.diagnose import show

    attempts = job.record["attempts"]
    if not attempts and not job.causes("before"):
        return
    yield "", ""
    if not attempts:
        yield "3. Fix and verify: for these causes there is no fix that can be tried by itself", "bold"
        return
    yield "3. Fix and verify", "bold"
    for one in attempts:
        cause = one["cause"]
        place = show.place(*(cause.get("original") or cause["user"])[:2])
        if one["outcome"] == "kept":
            yield f"   kept     {place}: {cause['title']}", "green"
            yield f"            {'it waits no more' if cause['kind'] == 'read' else 'the graph break is gone'}; values: {one['values']}", ""
        else:
            yield f"   dropped  {place}: {cause['title']}", "yellow"
            yield f"            {one['reason']}", ""
        for part in cause["patch"]["diff"].splitlines()[3:]:
            yield f"              {part}", "green" if part.startswith("+") else "red"
        if cause["patch"]["caution"]:
            yield f"              ({cause['patch']['caution']})", "dim"


def _left(job):
    from kintsugi.diagnose import show

    left = job.causes("after")
    yield "", ""
    if not left:
        yield "4. Left: nothing; fullgraph=True holds", "bold"
        return
    yield "4. Left for you" + ("" if job.breaks("after") else " (no graph break: fullgraph=True holds)"), "bold"
    for _, cause in left:
        filename, line, function = cause.get("original") or cause["user"]
        yield f"   {show.place(filename, line)} in {function}: {cause['title']} ({_price(cause)})", "" if _is_worth(cause) else "dim"
        code = cause["code"]
        if code and cause["kind"] in ("break", "read"):
            yield f"      {code}", "dim"
        for text in advice(cause):
            yield f"      {text}", ""


def _is_worth(cause):
    """Is it likely that removing it is noticed?"""
    return cause["share"] is None or cause["share"] >= 0.02


def advice(cause):
    """What to do about a cause that no fix was kept for, a line each."""
    found = []
    if not _is_worth(cause):
        return ["it costs less than 2% of the call: it can stay"]
    if cause["library"] and cause["kind"] == "break":
        found.append(f"the line is {cause['library']}'s ({os.path.basename(cause['filename'])}:{cause['line']} in {cause['function']}): "
                     f"override `{cause['function']}` in a subclass of your own, without this line")
    found += [f"fix: {cause['fix']}"] if cause["fix"] else []
    found += cause["hints"][:2]
    if cause["id"]:
        found.append(f"python -m kintsugi breaks {cause['id']} explains it, with an example" + (f"; {cause['page']}" if cause["page"] else ""))
    return found


def _measured(job):
    from kintsugi.diagnose import show

    measured = job.record["measured"]
    if not measured:
        return
    yield "", ""
    reads = (f" and {show.count(job.reads('before'), 'read')} of data", f" and {job.reads('after')}") if job.reads("before") else ("", "")
    yield f"5. Measure: {show.count(job.breaks('before'), 'graph break')}{reads[0]} before, {job.breaks('after')}{reads[1]} after", "bold"
    for name, one in measured.items():
        gain = f"; {one['before_us'] / one['after_us']:.2f}x as fast as before" if one["certain"] else ""
        yield (f"   {name}: {show.us(one['before_us'])} -> {show.us(one['after_us'])} a call (eager {show.us(one['eager_us'])}){gain}",
               "green" if gain and one["after_us"] < one["before_us"] else "yellow")
        yield f"   {one['verdict']}", "dim"
