"""Enters: command-line arguments. Leaves: an exit code, and what a command wrote.

Never belongs here: anything that a Python user would want to call; it lives in the packages above.
"""
