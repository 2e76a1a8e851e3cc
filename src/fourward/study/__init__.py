"""Enters: a protocol, which says what to measure. Leaves: rows in a results file, tables and figures made from them.

Never belongs here: kernels, graph algorithms, training loops; an experiment only calls the rooms above.

>>> import tempfile
>>> from fourward.study._run import run
>>> from fourward.study._tables import gains
>>> small = Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(4,), seeds=2, batches=2, methods=("4ward", "fourward"))
>>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
...     summary = run(store, {"times": small})
...     (line,) = gains(store.rows("times"))
>>> line["slow"], line["fast"], line["graphs"], line["gain"] > 0
('4ward', 'fourward', 2, True)
"""

from fourward.study._protocol import Protocol
from fourward.study._store import Row, Store

__all__ = ["Protocol", "Row", "Store"]
