"""What `kintsugi run` says at the end: three lines, from the event log."""

import collections

from . import command_for


def lines(script, arguments=()):
    """[] where nothing was compiled."""
    import kintsugi
    from kintsugi import _logs, _messages
    from kintsugi.diagnose.causes import USUAL
    from kintsugi.diagnose.show import count, place

    events = collections.defaultdict(list)
    for event in _logs.events():
        events[event["event"]].append(event)
    recorded = {(event["name"], event.get("filename"), event.get("line")) for event in events["record"]}
    if not recorded:
        return []
    stats = kintsugi.stats().values()
    calls, replays = (sum(one[key] for one in stats) for key in ("calls", "replays"))
    graphs = sum(event.get("graphs", 0) for event in (*events["record"], *events["extend"]))
    first = f"{count(len(recorded), 'compiled function')}, {count(len(events['record']), 'recording')}, {count(graphs, 'graph')}"
    if calls:
        first += f"; {replays} of {count(calls, 'call')} {'was' if calls == 1 else 'were'} replayed"
    eager = collections.Counter()
    for one in stats:
        eager.update({reason: times for reason, times in one["eager_calls"].items() if reason not in USUAL})
    if eager:
        first += f", {eager.total()} ran eagerly ({'mostly: ' if len(eager) > 1 else ''}{eager.most_common(1)[0][0]})"
    breaks = collections.Counter((event["type"], event.get("filename", "?"), event.get("line", 0)) for event in events["break"])
    second = "no graph breaks"
    if breaks:
        (title, filename, line), _ = breaks.most_common(1)[0]
        second = f"graph breaks at {count(len(breaks), 'line')}, most often at {place(filename, line)}: {title}"
    elif events["refuse"]:
        one = events["refuse"][-1]
        filename, line, _ = _messages.user_place(_messages.refusal_stack(one), ("?", 0, ""))
        second = f"a call raised at {place(filename, line)}, where fullgraph=True allows no graph break: {one['type']}"
    second += f"; {count(len(events['recompile']), 'recompile')}" + (", recompile limit reached" if events["limit"] else "")
    if events["bug"]:
        second += f"; {count(len(events['bug']), 'internal failure')} (eager results were used)"
    failed = collections.Counter(event["reason"] for event in events["fallback"] if event.get("why") == "BACKEND_FAILED")
    if failed:
        (reason, times), = failed.most_common(1)
        return [first, f"{reason}, {count(times, 'time')}", "what to do about it: python -m kintsugi breaks BACKEND_FAILED"]
    ask = "what each costs and how to fix it" if breaks or events["recompile"] or events["refuse"] else "how fast it is compared with eager"
    return [first, second, f"{ask}: python -m kintsugi explain {command_for(script, arguments)}"]
