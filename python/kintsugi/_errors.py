"""The error of fullgraph=True. It is also a torch._dynamo.exc.Unsupported, so PyTorch's compiler package is
imported when the class is first asked for, not before."""

import inspect
import sys
import traceback

from . import _messages

_class = None


class CommandError(Exception):
    """A command cannot do its work: the text says to the user of the command line why, and what to do."""



def _make_class():
    from torch._dynamo.exc import Unsupported as StockUnsupported

    takes_stack = "real_stack" in inspect.signature(StockUnsupported.__init__).parameters  # older versions of torch find one themselves

    class Unsupported(StockUnsupported):
        """A graph break under fullgraph=True.

        Attributes: reason (type string), explanation, hints, user_stack, stock_ids, why (stable name).
        """

        def __init__(self, msg="", *, row=None, stack=(), context=""):
            frames = _messages.frames(stack)
            if takes_stack:
                super().__init__(msg, row["type"] if row else "", real_stack=frames or traceback.StackSummary())
            else:
                super().__init__(msg)
            self.row = row
            self.why = row["why"] if row else ""
            self.reason = row["type"] if row else msg.partition("\n")[0]
            self.explanation = row["explanation"] if row else ""
            self.hints = list(row["hints"]) if row else []
            self.stock_ids = list(row["stock"]) if row else []
            self.user_stack = frames
            self.context = context

    Unsupported.__module__ = "torch._dynamo.exc"  # how tracebacks and the tools that read them spell it
    Unsupported.__qualname__ = "Unsupported"
    return Unsupported


def unsupported_class():
    global _class
    if _class is None:
        _class = _make_class()
    return _class


def invalid_backend(text):
    """The error for a name that is no backend: a ValueError, and what scripts written for stock catch."""
    from torch._dynamo.exc import InvalidBackend as StockInvalidBackend

    class InvalidBackend(StockInvalidBackend, ValueError):
        def __init__(self, text):
            super().__init__("?")
            self.args = (text,)

        def __str__(self):
            return self.args[0]

    InvalidBackend.__module__ = "torch._dynamo.exc"
    InvalidBackend.__qualname__ = "InvalidBackend"
    return InvalidBackend(text)


def __getattr__(name):
    if name == "Unsupported":
        return unsupported_class()
    raise AttributeError(name)


def make_unsupported(key, stack=None, context=""):
    """The error for a row (number, stable name or id); any other text becomes the message itself."""
    cls = unsupported_class()
    row = _messages.find_row(key)
    if row is None:
        return cls(str(key))
    stack = stack if stack is not None else _current_stack()
    return cls(_messages.unsupported_message(row, stack, context), row=row, stack=stack, context=context)


class EngineError(RuntimeError):
    """What the engine calls to make an error: EngineError(row, stack, context) is an Unsupported."""

    def __new__(cls, key="", stack=None, context=""):
        return make_unsupported(key, stack, context)


def _current_stack():
    """The user's running frames, innermost last, without ours."""
    here = __file__.rpartition("/")[0]
    stack = []
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(here):
            stack.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return stack
