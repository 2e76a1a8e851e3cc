"""CPU results as tables and a plot, with the cases that fourward loses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.storage import RESULTS, geometric_mean, write_page
from fourward._files import replacing
from fourward.errors import require

Cells = list[dict[str, Any]]
Kinds = tuple[tuple[str, str, str, str, float, list[float]], ...]
NAMES = {
    "fourward": "fourward",
    "masked": "paper's method",
    "sequential": "sequential",
    "deepstruct": "deepstruct",
    "csr": "CSR levels",
    "mlp": "MLP",
    "solve, by rows": "linear solve, by rows",
    "solve, by columns": "by columns",
}


def write_cpu_report(data: dict[str, Any]) -> None:
    """benchmarks/results/cpu.md and cpu.png, from the stored results."""
    grid = data["grid"]
    text = "\n".join(
        [
            "# CPU benchmark",
            "",
            f"{format_environment(data['facts'])} Written by `make bench-cpu`: all methods alternate in one process; "
            "of two passes over the grid, minutes apart, each method's best median."
            + "".join(f" Measured later: {what} ({when})." for what, when in data["facts"].get("later", {}).items()),
            "",
            "![ratios over the grid](cpu.png)",
            "",
            *_goals(data),
            "",
            "A turn starts with a warm-up, so that a call finds its own data in the cache, as in a loop. That favours "
            "short calls, which are ours. Where single calls alternate, each finds the others' data in the cache, and "
            "the goal of 40x is missed: a call of 15 microseconds then waits for its own code and weights.",
            "",
            "## The paper's grid: forward, milliseconds",
            "",
            *_table(grid, "forward", grid_name),
            "",
            "## The paper's grid: training step with Adam, milliseconds",
            "",
            *_table(grid, "train", grid_name),
            "",
            "Empty: cut off (deepstruct has a parameter for each pair of layers, here more than 4,000). The MLP has "
            "four equal layers and as many weights as the graph has edges.",
            "",
            "## Against BLAS's linear triangular solve, p=1.0: forward, milliseconds",
            "",
            *_table(data["solve"], "forward", lambda cell: f"N={cell['n']}, B={cell['batch']}"),
            "",
            "## C. elegans",
            "",
            *_table(data["c-elegans"], "forward", lambda cell: f"forward, B={cell['batch']}"),
            "",
            *_table(data["c-elegans"], "train", lambda cell: f"training, B={cell['batch']}"),
            "",
            "## Large sparse graphs, B=32",
            "",
            *_large(data["large"]),
            "",
            _growth(data["large"]),
            "",
        ]
    )
    write_page("cpu", text, RESULTS)
    kinds: Kinds = (
        ("forward", "masked", "fourward", "forward: gain over the paper's method", 40, [10, 20, 40, 60, 100, 200]),
        ("train", "fourward", "mlp", "training step: time over the MLP's", 1, [0.4, 0.5, 0.7, 1, 1.4, 2]),
    )
    require("matplotlib", "plot")
    plot_grid(grid, kinds, RESULTS / "cpu.png")


def format_environment(environment: dict[str, Any]) -> str:
    """The machine, the versions and the commit, in one sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in environment["versions"].items())
    return (
        f"{environment['date']}; {environment['processor']}, {environment['threads']} threads on "
        f"{environment['cores']} cores, "
        f"{environment['memory_gib']} GiB; {environment['system']}, Python {environment['python']}, {versions}; "
        f"commit {environment['commit']}."
    )


def format_rows(rows: list[list[str]]) -> str:
    """A table, whose first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def ratios(cells: Cells, kind: str, above: str, below: str) -> list[float]:
    """Ratios of two methods' times, over the cells that have both."""
    pairs = [(cell[kind].get(above), cell[kind].get(below)) for cell in cells]
    return [a / b for a, b in pairs if a is not None and b is not None]


def _goals(data: dict[str, Any]) -> list[str]:
    grid = data["grid"]
    forward, train = ratios(grid, "forward", "masked", "fourward"), ratios(grid, "train", "fourward", "mlp")
    largest = ratios([c for c in grid if c["n"] == 1024], "train", "fourward", "mlp")
    dense = [c["forward"] for c in data["solve"] if c["n"] == 1024 and c["batch"] >= 128]
    solve = [c["fourward"] / min(c["solve, by rows"], c["solve, by columns"]) for c in dense]
    bare = ratios(data["cold"], "forward", "masked", "fourward")
    cold = f"{geometric_mean(bare):.1f}x, {min(bare):.1f}x"
    building, million = data["building"], data["a_million_nodes"]
    sizes = [sum(building[name].values()) for name in ("complete 1024", "10^6 nodes, 10^7 edges")]
    growth = [c["train"]["fourward"] / c["edges"] / c["batch"] for c in data["large"] if c["edges"] < 20_000]
    step = million["seconds"] / 1e7 / 32
    first, over = data["first_uses"], data["overhead"]
    rows = [
        ("forward over the paper's method, geometric mean", "40x", f"{geometric_mean(forward):.1f}x"),
        ("the same, smallest", "10x", f"{min(forward):.1f}x"),
        ("the two above where single calls alternate, cold (45 cells)", "40x, 10x", cold),
        (
            "forward against a linear solve, N=1024, p=1.0, B=128 and 512",
            "1.0",
            " and ".join(f"{r:.2f}" for r in solve),
        ),
        ("training step against the MLP's, geometric mean", "1.0", f"{geometric_mean(train):.2f}"),
        ("the same, largest", "2.0", f"{max(train):.2f}"),
        ("the same, N=1024, smallest and largest", "1.2", f"{min(largest):.2f} to {max(largest):.2f}"),
        *_changes(grid, data["facts"].get("before")),
        ("building N=1024, p=1.0", "0.2 s", f"{sizes[0]:.3f} s"),
        ("building 10^6 nodes, 10^7 edges", "5 s", f"{sizes[1]:.2f} s"),
        ("its peak memory", "2 GB", f"{building['peak_gib']:.2f} GiB"),
        (
            "training step, 10^6 nodes, 10^7 edges, B=32",
            "",
            f"{million['seconds']:.2f} s, {million['peak_gib']:.2f} GiB",
        ),
        (
            "its time per edge and sample, over that of 10^4 edges",
            "3x",
            f"{step / max(growth):.2f}x to {step / min(growth):.2f}x",
        ),
        (
            "first use after installation, without importing torch",
            "15 s",
            f"{first['first process']['fourward']:.1f} s",
        ),
        ("first use in a later process, likewise", "1 s", f"{first['later process']['fourward']:.2f} s"),
        ("overhead of a pass over its kernel, N=64, p=0.2, B=32", "50 us", f"{over['pass'] - over['kernel']:.0f} us"),
    ]
    return ["| | goal | measured |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]


def _changes(grid: Cells, commit: str | None) -> list[tuple[str, str, str]]:
    """Against another commit, timed in turn: the mean, the worst cell, and how many are slower by over 5 %."""
    rows = []
    for kind, name in (("forward", "forward"), ("train", "training step")):
        changes = ratios([c for c in grid if f"{kind}, before" in c], f"{kind}, before", "fourward", "before")
        if commit and changes:
            slower = sum(change > 1.05 for change in changes)
            text = f"{geometric_mean(changes):.2f}, {max(changes):.2f}; {slower} of {len(changes)} over 1.05"
            rows.append((f"{name} over commit {commit[:7]}'s, geometric mean and largest", "1.05", text))
    return rows


def grid_name(cell: dict[str, Any]) -> str:
    """The label of a cell of the paper's grid."""
    return f"N={cell['n']}, p={cell['p']}, B={cell['batch']}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _table(cells: Cells, kind: str, name: Callable[[dict[str, Any]], str]) -> list[str]:
    columns = [method for method in NAMES if any(method in cell[kind] for cell in cells)]
    against = next(name for name in ("masked" if kind == "forward" else "mlp", "solve, by columns") if name in columns)
    note = "gain over the paper's method" if against == "masked" else "our time over theirs"
    lines = [f"| | height | {' | '.join(NAMES[c] for c in columns)} | {note} |", "|---" * (len(columns) + 3) + "|"]
    for cell in cells:
        times = [_milliseconds(cell[kind][c]) if c in cell[kind] else "" for c in columns]
        ours, other = cell[kind]["fourward"], cell[kind][against]
        ratio = f"{other / ours:.1f}x" if against == "masked" else f"{ours / other:.2f}"
        lines.append(f"| {name(cell)} | {cell['height']} | {' | '.join(times)} | {ratio} |")
    return lines


def _large(cells: Cells) -> list[str]:
    columns = (
        "graph",
        "nodes",
        "edges",
        "height",
        "forward: fourward",
        "CSR levels",
        "MLP",
        "training: fourward",
        "MLP",
    )
    lines = [f"| {' | '.join(columns)} | ps/edge/sample |"]
    lines.append("|---" * 10 + "|")
    for c in cells:
        forward = [_milliseconds(c["forward"][name]) for name in ("fourward", "csr", "mlp")]
        train = [_milliseconds(c["train"][name]) for name in ("fourward", "mlp")]
        each = 1e12 * c["train"]["fourward"] / c["edges"] / c["batch"]
        name = f"{c['graph'].upper()}, mean degree {c['degree']}"
        lines.append(
            f"| {name} | {c['nodes']:,} | {c['edges']:,} | {c['height']} | {' | '.join(forward + train)} | {each:.0f} |"
        )
    return lines


def _growth(cells: Cells) -> str:
    """How a forward pass alone grows: a step at 10^4 edges is mostly costs that don't grow."""
    grown = []
    for degree in (10, 100):
        each = [c["forward"]["fourward"] / c["edges"] for c in cells if c["graph"] == "er" and c["degree"] == degree]
        grown.append(f"{each[-1] / each[0]:.1f} (mean degree {degree})")
    return (
        f"A forward pass alone, which has little fixed cost, takes {' and '.join(grown)} times as long for an edge and "
        "a sample at 10^7 edges as at 10^4, Erdos-Renyi: its rows come from memory instead of the cache. Against the "
        "MLP, sparse graphs lose as soon as their activations outgrow the cache; the more edges a node has, the less."
    )


def plot_grid(grid: Cells, kinds: Kinds, path: Path) -> None:
    """A panel of ratios over the grid for each kind: what is timed, above, below, title, goal, ticks."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(kinds))
    for axes, (kind, above, below, title, goal, ticks) in zip(panels, kinds, strict=True):
        for p, marker in zip(sorted({cell["p"] for cell in grid}), "osD^v", strict=False):
            for batch, colour in zip(
                sorted({cell["batch"] for cell in grid}), ("#4477aa", "#ee6677", "#228833"), strict=False
            ):
                cells = [c for c in grid if c["p"] == p and c["batch"] == batch and {above, below} <= c[kind].keys()]
                values = ratios(cells, kind, above, below)
                axes.plot(
                    [c["n"] for c in cells],
                    values,
                    marker=marker,
                    color=colour,
                    lw=0.8,
                    ms=4,
                    label=f"p={p}, B={batch}",
                )
        axes.axhline(goal, color="#333333", ls="--", lw=1)
        axes.set(xscale="log", yscale="log", xlabel="nodes", title=f"{title} (dashed: goal)")
        axes.set_xticks([64, 128, 256, 512, 1024], labels=["64", "128", "256", "512", "1024"], minor=False)
        axes.set_yticks(ticks, labels=[f"{tick:g}x" for tick in ticks], minor=False)
        axes.minorticks_off()
    panels[-1].legend(fontsize=6, ncols=3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
