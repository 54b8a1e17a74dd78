"""torch._dynamo.callback: functions of the program that hear of the beginning and the end of each compilation. Here that is a recording, with
what its backend makes of it. The engine asks only where the module is imported, without which nobody can have registered any."""

import itertools
import sys

_numbers = itertools.count()


def begin():
    """The context manager that has told them of the beginning; None: there is nobody to tell."""
    module = sys.modules["torch._dynamo.callback"]
    handler, trigger = module.callback_handler, getattr(module, "CallbackTrigger", None)
    if not handler.start_callbacks and not handler.end_callbacks:
        return None
    try:
        manager = handler.install_callbacks(trigger.DYNAMO, f"{next(_numbers)}/0") if trigger is not None else handler.install_callbacks()  # before torch 2.8
    except (AttributeError, TypeError):  # a version that nobody knows yet
        return None
    manager.__enter__()
    return manager


def end(manager):
    manager.__exit__(None, None, None)
