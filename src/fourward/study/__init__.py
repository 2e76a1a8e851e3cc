"""Enters: a protocol, which says what to measure. Leaves: rows in a results file, tables and figures made from them.

Never belongs here: kernels, graph algorithms, training loops; an experiment only calls the packages before this one.

>>> import tempfile
>>> from fourward.study import Protocol, Store, gains, run
>>> small = Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(4,), seeds=2, batches=2, methods=("4ward", "fourward"))
>>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
...     summary = run(store, {"times": small})
...     (line,) = gains(store.rows("times"))
>>> line["slow"], line["fast"], line["graphs"], line["gain"] > 0
('4ward', 'fourward', 2, True)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourward.study._aggregate import gains, status
    from fourward.study._bench import MethodTiming, compare_methods
    from fourward.study._environment import describe_environment
    from fourward.study._figures.catalog import write_figures
    from fourward.study._figures.topologies import TOPOLOGY_STYLES
    from fourward.study._matched import TOPOLOGIES, matched_graph
    from fourward.study._protocol import Protocol, paper_protocol
    from fourward.study._report import write_report
    from fourward.study._run import Progress, Summary, run
    from fourward.study._store import Row, Store
    from fourward.study._topologies import FRACTIONS, Topologies, ablation_curve, run_topologies, run_topology

_MODULES = {
    "FRACTIONS": "_topologies",
    "MethodTiming": "_bench",
    "Progress": "_run",
    "Protocol": "_protocol",
    "Row": "_store",
    "Store": "_store",
    "Summary": "_run",
    "TOPOLOGIES": "_matched",
    "TOPOLOGY_STYLES": "_figures.topologies",
    "Topologies": "_topologies",
    "ablation_curve": "_topologies",
    "compare_methods": "_bench",
    "describe_environment": "_environment",
    "gains": "_aggregate",
    "matched_graph": "_matched",
    "paper_protocol": "_protocol",
    "run": "_run",
    "run_topologies": "_topologies",
    "run_topology": "_topologies",
    "status": "_aggregate",
    "write_figures": "_figures.catalog",
    "write_report": "_report",
}

__all__ = [
    "FRACTIONS",
    "TOPOLOGIES",
    "TOPOLOGY_STYLES",
    "MethodTiming",
    "Progress",
    "Protocol",
    "Row",
    "Store",
    "Summary",
    "Topologies",
    "ablation_curve",
    "compare_methods",
    "describe_environment",
    "gains",
    "matched_graph",
    "paper_protocol",
    "run",
    "run_topologies",
    "run_topology",
    "status",
    "write_figures",
    "write_report",
]


def __getattr__(name: str) -> Any:  # experiments import torch, reports matplotlib
    if name not in _MODULES:
        raise AttributeError(f"module 'fourward.study' has no attribute {name!r}")
    return getattr(import_module(f"fourward.study.{_MODULES[name]}"), name)
