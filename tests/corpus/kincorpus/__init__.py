"""The behaviour corpus: cases are run in eager and under an engine, and everything observable is compared."""
