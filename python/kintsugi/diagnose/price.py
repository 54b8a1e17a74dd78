"""What each cause costs: microseconds of a call, measured by making the function without it. How that was found is one word for each price.

"measured"  the tensor calls of the recording were compiled as they are and with the cause bridged, and timed in turns
"modelled"  the boundary was measured in the same way, but what the break itself does (a call of C code, say) cannot be left out or run
            apart: it is the part of the call that is not explained by graphs, shared among such causes by how often they come. Where the
            tensor calls themselves cannot be run apart, the boundary is that of a small function on this machine (model)
"""

from .. import _api
from .._config import config
from . import model, outside, paths, show, timing
from . import program as programs
from .screen import quiet

MOST = 8          # causes that are priced one by one; the rest are told without a price
WORTH_TELLING = 0.02  # share of a call from which a cause of these kinds is told
SMALL = ("effect", "read")
SECONDS = 0.25    # of measuring for each way


class Verdict:
    """What a call takes: eager, compiled, and compiled without its breaks. Seconds; None: not measured."""

    def __init__(self):
        self.eager = self.compiled = self.without_breaks = None  # the last may be more than `compiled`: then the fixes gain nothing
        self.spread = 0.0
        self.rest = None  # what a call takes beyond its tensor calls compiled, guards and side effects
        self.disturbed = False  # other programs interrupted most of what was timed
        self.one_thread = False  # measured on one thread, since others kept the processors that more of them need
        self.range = None       # the least and the most that parts of the measurement gave for the speedup
        self.note = ""

    @property
    def speedup(self):
        """None: not measured, or not known."""
        return self.eager / self.compiled if self.eager and self.compiled and self.certain else None

    @property
    def certain(self):
        """A ratio that varies from one part of the measurement to the next says nothing."""
        return not self.disturbed and (self.range is None or self.range[1] <= timing.CERTAIN * self.range[0])

    @property
    def warning(self):
        """What a reader has to know of the times; "": nothing."""
        if not self.certain:
            between = " (between {:.2g} and {:.2g} times as fast as eager)".format(*self.range) if self.range else ""
            return f"uncertain: other programs used the processors while times were taken{between}; measure again when the machine is less busy"
        if self.one_thread:
            return "other programs use the processors that PyTorch's threads need, so all times are those of one thread"
        return f"times varied by {self.spread:.0%} while they were measured: other programs use this machine" if self.spread > 0.1 else ""

    def as_dict(self):
        us = {name: value * 1e6 if value is not None else None for name, value in (
            ("eager_us", self.eager), ("compiled_us", self.compiled), ("without_breaks_us", self.without_breaks))}
        return us | {"speedup": self.speedup, "speedup_range": self.range, "certain": self.certain, "one_thread": self.one_thread, "spread": self.spread,
                     "disturbed": self.disturbed, "warning": self.warning, "note": self.note}


def measure(observed, call, causes, verdict, progress=lambda text: None, seconds=SECONDS, may_run=True, left=False):
    """Fills in the verdict, and price_us, spread_us, how and share of causes that are breaks or effects. All ways are timed in turns. left: graphs run step by step,
    so that it is of interest what the same tensor calls take compiled."""
    engine = _api.start_engine()
    breaks = [cause for cause in causes if cause.kind == "break"]
    reads = [cause for cause in causes if cause.kind == "read"]
    effects = [cause for cause in causes if cause.kind == "effect"]
    compiled, ways, failed = {}, {}, set()
    program, known, dump = None, [], None
    given = call.copy()
    if breaks or (reads or effects or left) and may_run:
        progress(f"{observed.name}: writing its tensor calls as a function")
        try:
            dump, values = programs.capture(observed, call, may_run, given)
            known = _find(dump, breaks)
            made = programs.Program(dump, values)
            with quiet(), call.modes():
                made.try_out()
            program = made
            known += _find_reads(program, reads)
        except programs.NoProgram as error:
            told = f"prices of graph breaks are modelled: {error}" if known else ""
            verdict.note = "; ".join(filter(None, (verdict.note, told)))
    with quiet(), call.modes():
        if may_run:
            ways["eager"], ways["compiled"] = _real(observed, given)
            ways["eager"]()
            timing.warm(ways["compiled"], (observed.compiled,))
        with config.patch(step_aside=False):
            for name, fn in _variants(program, known, effects if may_run else (), failed):
                progress(f"{observed.name}: compiling {count_of(len(compiled) + 1)} variant")
                compiled[name] = engine.Compiled(fn)
                ways[name] = _caller(compiled[name], program.args)
                if not _runs(ways[name], compiled[name], name):
                    del ways[name]
                    failed.add(name)
        progress(f"{observed.name}: measuring")
        with config.patch(step_aside=config.step_aside and _is_aside(observed)):  # a comparison with eager calls that has not ended is no part of a call
            times = timing.steady(ways, seconds * len(ways)) if ways else {}
        opaque = [cause for cause in (*effects, *(cause for cause, _ in known if not _is_bridged(cause)))] if may_run else []
        alone = timing.of_lines(ways["eager"], {(cause.filename, cause.line) for cause in opaque}) if opaque else {}
        guards = engine.time_guards(observed.compiled, given[0], kwargs=given[1]) * 1e-9 if may_run else 0.0
    verdict.disturbed = any(one.disturbed for one in times.values())
    verdict.one_thread = any(one.one_thread for one in times.values())
    if may_run:
        verdict.range = timing.ratio(times["eager"], times["compiled"])[1:]
        verdict.eager, verdict.compiled = times["eager"].typical, times["compiled"].typical
        verdict.spread = max(times["eager"].spread, times["compiled"].spread)
    if program is not None:
        _fill_all(known, effects if may_run else (), times, verdict, guards, alone)
        _fill_modelled([pair for number, pair in enumerate(known[:MOST]) if number not in times and pair[0].kind == "break"], dump, verdict)
    elif known:
        progress(f"{observed.name}: measuring what a graph break costs on this machine")
        _fill_modelled(known, dump, verdict)


def _runs(way, compiled, name):
    """A check that fails on these tensors, and is caught where the program makes it, raises where it is bridged."""
    try:
        timing.warm(way, (compiled,), most=40)
    except Exception:
        if name in ("base", "without effects"):
            raise
        return False
    return True


def _fill_modelled(known, dump, verdict):
    for cause, steps in known:
        price = model.price(dump, steps)
        cause.price_us = min(price, verdict.compiled or price) * 1e6
        cause.share = cause.price_us * 1e-6 / verdict.compiled if verdict.compiled else None
        cause.doubt("it is what such a break costs in a small function here, and what is written and read again because of it")


def fill_eager(causes, verdict, calls):
    """Calls that ran eagerly: what they took longer, spread over all calls that the program made."""
    if not verdict.speedup or verdict.speedup <= 1:
        return
    longer = (verdict.eager - verdict.compiled) * 1e6
    for cause in causes:
        if cause.kind == "eager" and calls:
            cause.price_us, cause.how = longer * cause.count / calls, "modelled"
            cause.share = cause.price_us / (verdict.compiled * 1e6 + cause.price_us)
            cause.notes.append(f"on average over {calls} calls: {cause.count} of them took {longer:.0f} us longer each")


def fill_recompiles(causes, events, calls):
    """What recording and compiling anew took, spread over the calls that the program made: no share of a call that comes later."""
    entries = {event["entry"]: event for event in events if event["event"] == "record" and "entry" in event}
    for cause in causes:
        made = [entries[number] for number in cause.entries if number in entries]
        took = sum(event["record_ns"] for event in made) + sum(event["compile_ns"] for event in events if event["event"] == "lower" and event["entry"] in cause.entries)
        if made and calls:
            cause.price_us, cause.how = took / 1e3 / calls, "measured"
            cause.notes.insert(0, f"recording and compiling anew took {took / 1e6:.1f} ms in this run of {calls} calls; calls that come later do not pay for it")


def say_why(causes, verdict):
    """Each cause without a price says why it has none."""
    reasons = {"partial": "what runs eagerly behind it has no compiled form to be compared with", "steps": "the same tensor calls could not be timed compiled",
               "recompile": "what the recording took is not known any more", "effect": "its line could not be timed",
               "eager": "no call ran compiled that eager ones could be compared with" if not verdict.speedup else "compiled calls are no faster than eager ones"}
    for cause in causes:
        if cause.price_us is None:
            reasons["break"] = (f"only the {MOST} most frequent ones are priced" if sum(one.kind == "break" for one in causes) > MOST
                                else reasons["partial"] if any(one.kind == "partial" for one in causes) else "the call that was measured does not come by it")
            cause.unpriced = cause.unpriced or verdict.note.partition("not measured: ")[2] or reasons[cause.kind]


def count_of(number):
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _is_aside(observed):
    return any(variant["backed_off"] for variant in observed.compiled.stats()["variants"])


def _real(observed, given):
    """All ways take the same tensors: others would be in other places of the caches."""
    (args, kwargs), compiled, fn = given, observed.compiled, observed.compiled.fn
    return lambda: fn(*args, **kwargs), lambda: compiled(*args, **kwargs)


def _find(dump, breaks):
    """For each cause that the recording has its steps there, the most frequent one first."""
    by_place, taken = {}, paths.last(dump)
    for entry in dump["breaks"]:
        if entry["step"] not in taken:
            continue
        by_place.setdefault((entry["why"], entry["filename"], entry["line"]), []).append(entry["step"])
    known = [(cause, by_place[cause.why, cause.filename, cause.line]) for cause in breaks if (cause.why, cause.filename, cause.line) in by_place]
    for cause, steps in known:
        cause.count = len(steps)
    return sorted(known, key=lambda pair: -len(pair[1]))


def _find_reads(program, reads):
    """The same for reads: where they stand in this recording."""
    found = []
    for cause in reads:
        steps = program.own_reads(index for index, node in programs.reads(program.dump).items()
                                  if (node["filename"], node["line"], bool(node["vid"])) == (cause.filename, cause.line, bool(cause.reads)))
        if steps:
            cause.count = len(steps)
            found.append((cause, steps))
    return sorted(found, key=lambda pair: -len(pair[1]))


def _is_bridged(cause):
    """Is there a program without it that does the same? Else its price is a model."""
    return cause.kind == "read" or cause.why in programs.BRIDGED


def _variants(program, known, effects, failed):
    if program is None:
        return
    yield "base", program.write(())
    left_out = program.only_for_effects() if effects else ()
    if left_out:
        yield "without effects", program.write((), left_out)
    for number, (_, steps) in enumerate(known[:MOST]):
        yield number, program.write(steps)
    if len(known) > 1:
        yield "all", program.write([step for number, (_, steps) in enumerate(known) if number not in failed for step in steps])


def _fill_all(known, effects, times, verdict, guards, alone):
    base = times["base"].typical
    total = verdict.compiled or base
    every = next(name for name in ("all", 0, "base") if name in times and (name != 0 or len(known) == 1))
    # What the call takes beyond its tensor calls. It cannot be less than nothing: then the program was disturbed, and with it the prices.
    rest = max(0.0, total - base)
    scale = 1.0
    if known and total < base and base > times[every].typical:
        scale = max(0.0, total - times[every].typical) / (base - times[every].typical)
    for number, (cause, _) in enumerate(known[:MOST]):
        if number in times:
            _fill(cause, times, number, scale)
    spread = timing.difference(times, "compiled", "base")[1] if "compiled" in times else 0.0
    feeding = max(0.0, scale * timing.difference(times, "base", "without effects")[0]) if "without effects" in times else 0.0
    verdict.rest = _share_rest([cause for cause, _ in known if cause.price_us is not None and not _is_bridged(cause)], effects, max(0.0, rest - guards), spread, alone, feeding)
    if verdict.compiled and known and every != "base":
        beyond = sum(cause.price_us for cause, _ in known if cause.price_us is not None and not _is_bridged(cause)) * 1e-6
        verdict.without_breaks = total - scale * (base - times[every].typical) if not beyond else max(0.0, min(total - beyond, times[every].typical + rest))
    for cause, _ in known:
        # Replays do something at these places that the program of tensor calls alone does not: the fix may save it, too. (Side effects explain it otherwise.)
        if not effects and cause.how == "measured" and 2 * verdict.rest * 1e6 > cause.price_us:
            cause.doubt(f"a call takes {show.us(verdict.rest * 1e6)} beyond its tensor calls and guards, of which the fix may save a part")
    for cause in (*(cause for cause, _ in known), *effects):
        if cause.price_us is not None:
            cause.price_us = min(cause.price_us, total * 1e6)
            cause.share = cause.price_us / (total * 1e6)


def _caller(compiled, args):
    return lambda: compiled(*args)


def _fill(cause, times, number, scale):
    gain, spread = (scale * value for value in timing.difference(times, "base", number))
    cause.price_us, cause.spread_us = max(0.0, gain * 1e6), spread * 1e6
    cause.how = "measured" if _is_bridged(cause) else "modelled"
    if gain < -max(spread, 0.01 * times["base"].typical):
        cause.notes.append(f"without the break the call would take {show.us(-gain * 1e6)} longer: what replaces it computes more")
    if cause.why == "DATA_DEPENDENT_BRANCH" and cause.skipped:
        cause.doubt("torch.where would also compute the side that these calls did not take")
    elif any(times[way].disturbed for way in ("base", number)):
        cause.doubt("other programs interrupted most of what was timed")
    elif spread > max(abs(gain) / 3, 0.2e-6):
        cause.doubt(f"it varied by {show.us(spread * 1e6)} from turn to turn")
    elif abs(gain) < 0.1 * times["base"].typical and cause.how == "measured":
        cause.doubt("it is small, and depends on how the fix is written")


def _share_rest(causes, effects, rest, spread, alone, feeding):
    """What is neither tensor calls nor guards: calls that break the graph and cannot be left out, and side effects. Each takes what it takes in an eager call, or less
    where that is more than there is. feeding: what tensor calls take that only side effects need. Gives what is left, in seconds."""
    takes = {id(cause): alone.get((cause.filename, cause.line), 0.0) for cause in (*causes, *effects)}
    scale = min(1.0, rest / sum(takes.values())) if any(takes.values()) else 0.0
    for cause in causes:
        own = scale * takes[id(cause)] * 1e6
        cause.price_us += own
        if own > 0.3 * cause.price_us and cause.how != "uncertain":
            cause.doubt("most of it is the call itself, and what replaces it will take some of that" if own > 0.5 * cause.price_us
                        else "part of it is the call itself, and what replaces it will take some of that")
        elif own > 0:
            cause.notes.append("the call itself is part of the price: what replaces it will take some of that")
    for cause in effects:
        share = takes[id(cause)] / sum(takes[id(one)] for one in effects) if takes[id(cause)] else 0.0
        cause.price_us, cause.spread_us, cause.how = (scale * takes[id(cause)] + feeding * share) * 1e6, spread * 1e6, "modelled"
        if feeding * share > 0.3e-6 * cause.price_us:
            cause.notes.append(f"{show.us(feeding * share * 1e6)} of it are tensor calls, and reads of their results, that nothing else needs")
        if spread > max(rest / 3, 0.2e-6):
            cause.doubt(f"it varied by {show.us(spread * 1e6)} from turn to turn")
    return rest - scale * sum(takes.values())


def fill_steps(causes, verdict):
    """Graphs that run step by step: what a call takes beyond the same tensor calls compiled, side effects and guards."""
    for cause in causes:
        if verdict.rest is not None and verdict.compiled:
            cause.price_us = verdict.rest * 1e6 * cause.count / sum(one.count for one in causes)
            cause.share = cause.price_us * 1e-6 / verdict.compiled
            cause.doubt("it is what the call takes beyond the same tensor calls, compiled by themselves")
