"""Changed sources for a process, without writing to any file: what is imported or run has the new text, under its old name."""

import contextlib
import importlib.machinery
import linecache
import os
import runpy


@contextlib.contextmanager
def installed(texts):
    """Within it, files of `texts` ({absolute path: text}) are read as that text by import and by observe.run_script()."""
    loader = importlib.machinery.SourceFileLoader
    get_code, run_path = loader.get_code, runpy.run_path

    def changed_code(self, name):
        text = texts.get(os.path.abspath(self.get_filename(name)))
        return get_code(self, name) if text is None else self.source_to_code(text.encode(), self.get_filename(name))

    def changed_run(path, init_globals=None, run_name=None):
        text = texts.get(os.path.abspath(path))
        return run_path(path, init_globals, run_name) if text is None else _run(path, text, run_name)

    loader.get_code, runpy.run_path = changed_code, changed_run
    show(texts)
    try:
        yield
    finally:
        loader.get_code, runpy.run_path = get_code, run_path


def show(texts):
    """Tracebacks and reports quote the changed lines; both spellings of a path are known, for code has the one it was run by."""
    for path, text in texts.items():
        for name in (path, os.path.relpath(path)):
            linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name


def _run(path, text, name):
    """As runpy.run_path() does it, with this text."""
    import sys
    import types

    module = types.ModuleType(name or "<run_path>")
    module.__file__ = path
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, path, "exec"), module.__dict__)
        return dict(module.__dict__)
    finally:
        if before is not None:
            sys.modules[module.__name__] = before
        else:
            del sys.modules[module.__name__]
