"""Zero lines: an unmodified Python program as one attempt, instrumented by its environment.

`parent` hands the program its attempt and takes in what it records, `process` is the started program, `signals` what it is
sent. `child` sets up each of its Python processes, called by `path/sitecustomize.py`, which the environment puts on their
import path. `spool` is the directory between the two sides.
"""
