"""Enters: a protocol, which says what to measure. Leaves: rows in a results file, tables and figures made from them.

Never belongs here: kernels, graph algorithms, training loops; an experiment only calls the rooms above.
"""
