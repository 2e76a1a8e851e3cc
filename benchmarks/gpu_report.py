"""The GPU results as tables and a plot, losing cases included and marked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.fresh import FIRST_USES
from benchmarks.report import Cells, Kinds, format_environment, grid_name, plot_grid, ratios
from benchmarks.storage import geometric_mean

NAMES = {
    "fourward": "**fourward**",
    "fourward graph": "**fourward, graph**",
    "masked": "paper's method",
    "masked graph": "paper's, graph",
    "sequential": "sequential",
    "deepstruct": "deepstruct",
    "csr": "CSR levels",
    "solve": "linear solve",
    "solve graph": "linear solve, graph",
    "mlp": "MLP",
    "mlp graph": "MLP, graph",
}
SOLVES = ("solve, by rows", "solve, by columns")
MILLION = {"wanted": 10**7, "degree": 10}


def report_text(data: dict[str, Any]) -> str:
    """gpu.md, of whatever there is by now."""
    machine = data["facts"]
    card = f"{machine['card']}, driver {machine['driver']}, CUDA {machine['cuda']}"
    card += f", float32 ({machine['matmul']} precision)"
    bandwidth = (
        f"a device copy moves {machine['copy_bandwidth'] / 1e9:,.0f} GB/s" if "copy_bandwidth" in machine else ""
    )
    parts = [
        ["# GPU benchmark"],
        [f"{card}; {bandwidth}. {format_environment(machine)}"],
        [_HOW],
        goals(data),
        *_cells_text(data.get("grid", []), "The paper's grid", grid_name),
        *_cells_text(data.get("worm", []), "C. elegans", lambda cell: f"B={cell['batch']}"),
        *_large_text(data),
        *_host_text(data),
        *_failures_text(data),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


_HOW = (
    "Written by `make bench-gpu`: all contestants in one process, taking turns; a turn is a burst of calls between two "
    "CUDA events; medians over the turns. *Graph* means replayed under a CUDA graph, everything else is called as a "
    "user would. The paper's method is `paper.Masked4Ward`; the linear solve is torch.linalg.solve_triangular with a "
    "matrix of the same pattern and as many right-hand sides, stored by rows or by columns, whichever is faster; the "
    "MLP has four equal layers and as many weights. A training step is forward, backward and fused Adam. Results are "
    "compared with the paper's method's before anything is timed. *loses to* names who is faster than ours, like "
    "against like: called against called, graph against graph."
)


def goals(data: dict[str, Any]) -> list[str]:
    """Goals and what was measured, as a table."""
    grid = [_with_solve(cell) for cell in data.get("grid", [])]
    rows: list[tuple[str, str, str, str]] = []
    for title, goal, other, least in (
        ("forward over the paper's method", "100x", "masked", 100),
        ("forward over the paper's method under a CUDA graph", "20x", "masked graph", 20),
    ):
        for ours in ("fourward", "fourward graph"):
            rows += _gain(f"{title}, {_ours(ours)}, geometric mean of {{}} cells", goal, grid, other, ours, least)
    dense = [cell for cell in grid if cell["p"] == 1.0]
    for ours in ("fourward", "fourward graph"):
        other = ours.replace("fourward", "solve")
        rows += _most(f"forward, p=1.0, against the linear solve, {_both(ours)}", dense, "forward", ours, other)
    rows += _most("training step against the eager MLP's, as called", grid, "train", "fourward", "mlp")
    rows += _most("both under a CUDA graph (no goal)", grid, "train", "fourward graph", "mlp graph", goal="")
    rows += _million(data) + _host_goals(data)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["| | goal | measured | |", "|---|---|---|---|", *lines]


def _ours(name: str) -> str:
    return "ours as called" if name == "fourward" else "ours under a CUDA graph"


def _both(name: str) -> str:
    return "both as called" if name == "fourward" else "both under a CUDA graph"


def _gain(title: str, goal: str, cells: Cells, other: str, ours: str, least: float) -> list[tuple[str, str, str, str]]:
    gains = ratios(cells, "forward", other, ours)
    if not gains:
        return []
    mean = geometric_mean(gains)
    text = f"{mean:.1f}x ({min(gains):.1f}x to {max(gains):.1f}x)"
    return [(title.format(len(gains)), goal, text, "met" if mean >= least else "**missed**")]


def _most(
    title: str, cells: Cells, kind: str, ours: str, other: str, goal: str = "1.0 at every cell"
) -> list[tuple[str, str, str, str]]:
    gains = ratios(cells, kind, ours, other)
    if not gains:
        return []
    lost = sum(ratio > 1 for ratio in gains)
    text = f"{geometric_mean(gains):.2f} (geometric mean; {max(gains):.2f} at most; over 1 in {lost} of {len(gains)})"
    return [(title, goal, text, "" if not goal else "**missed**" if lost else "met")]


def _million(data: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The row of 10^6 nodes and 10^7 edges."""
    cells = [cell for cell in data.get("large", []) if MILLION.items() <= cell.items()]
    title = f"training step, 10^6 nodes, 10^7 edges, B={cells[0]['batch']}" if cells else ""
    if not cells or "fourward" not in cells[0]["train"]:
        return [(title, "trains", "it doesn't", "**missed**")] if cells else []
    cell = cells[0]
    took, bandwidth = cell["train"]["fourward"], data["facts"]["copy_bandwidth"]
    times = [took * bandwidth / cell["bytes"][key] for key in ("train", "train, gathered")]
    text = f"{1e3 * took:.3g} ms: {times[0]:.1f} of the time of its least bytes, {times[1]:.1f} of the gathered ones"
    rows = [(title, "trains", text, "met")]
    if cell["memory"]:
        peak, least = cell["memory"]["peak"], cell["memory"]["least"]
        text = f"{peak / 2**30:.2f} GiB, {peak / least:.1f} of 16 E + 8 N B bytes"
        rows.append(("its peak memory", "O(E + N B)", text, ""))
    return rows


def _host_goals(data: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    over = data.get("overhead", {})
    rows = []
    if "bare launch" in over:
        text = f"{over['pass']:.1f} us, and {over['bare launch']:.1f} us for a bare Triton launch"
        rows.append(("the host's time for a pass, N=64, B=32", "", text, ""))
    for key, nodes in FIRST_USES.items():
        if key in data:
            text = " and ".join(f"{times['fourward']:.1f} s ({name})" for name, times in data[key].items())
            rows.append((f"first forward and backward, N={nodes}, B=32, after importing torch", "", text, ""))
    return rows


def _with_solve(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with one linear solve, the faster of the two; likewise under a CUDA graph."""
    forward, missing = dict(cell["forward"]), dict(cell["missing"]["forward"])
    for graph in ("", " graph"):
        names = [name + graph for name in SOLVES]
        times = [forward.pop(name) for name in names if name in forward]
        reasons = [missing.pop(name) for name in names if name in missing]
        if times:
            forward["solve" + graph] = min(times)
        elif reasons:
            missing["solve" + graph] = reasons[0]
    return {**cell, "forward": forward, "missing": {**cell["missing"], "forward": missing}}


def _cells_text(cells: Cells, title: str, name: Any) -> list[list[str]]:
    if not cells:
        return []
    cells = [_with_solve(cell) for cell in cells]
    forward, train = ([f"## {title}: {what}, microseconds"] for what in ("forward", "training step with fused Adam"))
    return [
        forward,
        _table(cells, "forward", name, (("gain over the paper's", "masked"), ("graph over its graph", "masked graph"))),
        *_missing_text(cells, "forward"),
        train,
        _table(cells, "train", name, (("gain over the paper's", "masked"), ("gain over the MLP", "mlp"))),
        *_missing_text(cells, "train"),
        [_errors_text(cells)],
    ]


def _table(cells: Cells, kind: str, name: Any, gains: tuple[tuple[str, str], ...]) -> list[str]:
    """Times of all contestants, gains over some, and who is faster than ours."""
    known = {rival for cell in cells for rival in (*cell[kind], *cell["missing"][kind])}
    columns = [rival for rival in NAMES if rival in known]
    head = ["", "height", *(NAMES[c] for c in columns), *(title for title, _ in gains), "loses to"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in cells:
        times = [_time(cell, kind, column) for column in columns]
        won = [_ratio(cell[kind], other) for _, other in gains]
        lines.append(f"| {' | '.join([name(cell), str(cell['height']), *times, *won, loses_to(cell[kind])])} |")
    return lines


def _time(cell: dict[str, Any], kind: str, name: str) -> str:
    if name in cell[kind]:
        return f"{1e6 * cell[kind][name]:.3g}" if cell[kind][name] < 1e-3 else f"{1e6 * cell[kind][name]:,.0f}"
    why: str = cell["missing"][kind].get(name, "")
    return why.partition(":")[0]


def _ratio(times: dict[str, float], other: str) -> str:
    ours = "fourward graph" if other.endswith("graph") else "fourward"
    return f"{times[other] / times[ours]:.3g}x" if {ours, other} <= times.keys() else ""


def loses_to(times: dict[str, float]) -> str:
    """The baselines that are faster than ours, like against like."""
    lost = []
    for name, seconds in times.items():
        ours = "fourward graph" if name.endswith("graph") else "fourward"
        if name in NAMES and name != ours and times.get(ours, 0.0) > seconds:
            lost.append(NAMES[name])
    return f"**{', '.join(lost)}**" if lost else ""


def _missing_text(cells: Cells, kind: str) -> list[list[str]]:
    """Why times are missing, and how often."""
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for name, reason in cell["missing"][kind].items():
            what, _, why = reason.partition(": ")
            groups.setdefault((name, what), []).append(why)
    lines = [
        f"- {NAMES.get(name, name)}, {what} in {len(reasons)} of {len(cells)} cells: "
        + "; ".join(list(dict.fromkeys(reasons))[:3])
        + ("; and so on" if len(set(reasons)) > 3 else "")
        for (name, what), reasons in groups.items()
    ]
    return [lines] if lines else []


def _errors_text(cells: Cells) -> str:
    worst: dict[str, float] = {}
    for cell in cells:
        for name, error in cell["errors"].items():
            worst[name] = max(worst.get(name, 0.0), error)
    listed = ", ".join(f"{name} {error:.1e}" for name, error in worst.items())
    engines = ", ".join(sorted({cell["engine"] for cell in cells}))
    return f"Engine: {engines}. Largest relative errors against the paper's method as called: {listed}."


def _large_text(data: dict[str, Any]) -> list[list[str]]:
    cells = data.get("large", [])
    if not cells:
        return []
    bandwidth = data["facts"]["copy_bandwidth"]
    tables = []
    for kind, title in (("forward", "forward"), ("train", "training step with fused Adam")):
        table = _table(cells, kind, _large_name, (("gain over the MLP", "mlp"),))
        extra = ["least ms", "time over it", "gathered ms", "time over it"]
        extra += ["peak GiB", "over least"] if kind == "train" else []
        table[0] += f" {' | '.join(extra)} |"
        table[1] += "---|" * len(extra)
        for row, cell in enumerate(cells, start=2):
            table[row] += f" {' | '.join(_floor(cell, kind, bandwidth))} |"
        tables += [[f"## Large sparse graphs: {title}, microseconds"], table, *_missing_text(cells, kind)]
    return [*tables, [_BYTES], _building(cells)]


_BYTES = (
    "*Least* is the time of the bytes that a pass must move at the measured bandwidth of a copy: forward 8 E + 8 N B "
    "(weights and sources; activations written and read once), a training step 48 E + 20 N B (both directions 8 E, "
    "gradients 4 E, Adam 28 E; activations written once and read twice, their gradients written and read once). "
    "*Gathered* counts a row of the batch for each edge and direction instead of each row read once, as if no row were "
    "ever found in a cache: 8 E + 4 N B + 4 E B, and 48 E + 12 N B + 8 E B. *Peak* is the most memory that torch had "
    "allocated in a training step, *over least* against 16 E + 8 N B (weights, gradients, Adam's two moments; "
    "activations and their gradients). Ours is compared with CSR levels (cuSPARSE) first."
)


def _large_name(cell: dict[str, Any]) -> str:
    return f"N={cell['nodes']:,}, E={cell['edges']:,}, B={cell['batch']}"


def _floor(cell: dict[str, Any], kind: str, bandwidth: float) -> list[str]:
    """Times of the bytes that must move, ours over them, and memory."""
    took, texts = cell[kind].get("fourward"), []
    for key in (kind, f"{kind}, gathered"):
        floor = cell["bytes"][key] / bandwidth
        texts += [f"{1e3 * floor:.3g}", f"{took / floor:.2f}" if took else ""]
    if kind == "train":
        memory = cell["memory"]
        texts += [f"{memory['peak'] / 2**30:.3g}", f"{memory['peak'] / memory['least']:.2f}"] if memory else ["", ""]
    return texts


def _building(cells: Cells) -> list[str]:
    head = ["| | making the Dag, s | making the network, s |", "|---|---|---|"]
    rows = [f"| {_large_name(c)} | {c['building']['graph']:.2f} | {c['building']['network']:.2f} |" for c in cells]
    return head + rows


def _host_text(data: dict[str, Any]) -> list[list[str]]:
    parts = []
    if "overhead" in data:
        rows = [f"| {name} | {time:.1f} |" for name, time in data["overhead"].items()]
        head = "## The host's share: microseconds until a call returns, N=64, p=0.2, B=32, device not waited for"
        parts += [[head], ["| | us |", "|---|---|", *rows]]
    rows = [
        f"| {nodes} | {name} | {times['torch']:.2f} | {times['fourward']:.2f} |"
        for key, nodes in FIRST_USES.items()
        for name, times in data.get(key, {}).items()
    ]
    if rows:
        head = "## First forward and backward of a process, p=0.2, B=32, seconds"
        parts += [[head], ["| N | kernel cache | torch and the GPU | fourward |", "|---|---|---|---|", *rows]]
    return parts


def _failures_text(data: dict[str, Any]) -> list[list[str]]:
    failures = data.get("failures", [])
    return [["## Failures"], [f"- {' '.join(failure.split())}" for failure in failures]] if failures else []


def plot_gpu(data: dict[str, Any], path: Path) -> None:
    """The grid's ratios, where matplotlib is installed and there is a grid."""
    grid = data.get("grid", [])
    if not grid or find_spec("matplotlib") is None:
        return
    kinds: Kinds = (
        ("forward", "masked", "fourward", "forward: gain over the paper's method", 100, [10, 30, 100, 300, 1000, 3000]),
        ("train", "fourward", "mlp", "training step: time over the eager MLP's", 1, [0.3, 0.5, 0.7, 1, 1.4, 2]),
    )
    plot_grid(grid, kinds, path)
