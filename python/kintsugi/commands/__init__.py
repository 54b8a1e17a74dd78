"""The commands of `python -m kintsugi`, a module each: add(commands) declares its arguments, run(options) runs it and returns the exit status."""
