"""torch._dynamo.callback: functions of the program that hear of the beginning and the end of each compilation. Here that is a recording, with
what its backend makes of it. The engine asks only where the module is imported, without which nobody can have registered any."""

import itertools

_numbers = itertools.count()


def begin():
    """The context manager that has told them of the beginning; None: there is nobody to tell."""
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    if not callback_handler.start_callbacks and not callback_handler.end_callbacks:
        return None
    manager = callback_handler.install_callbacks(CallbackTrigger.DYNAMO, f"{next(_numbers)}/0")
    manager.__enter__()
    return manager


def end(manager):
    manager.__exit__(None, None, None)
