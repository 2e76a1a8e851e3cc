"""Enters: a Dag, a Layering or a network. Leaves: pictures.

Never belongs here: training, timing, anything that a picture doesn't show.
"""
