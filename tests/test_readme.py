"""The README's Python runs as it stands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_readme_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["y"].shape == (32, 1)
    assert len(names["graph"]) == names["dag"].num_nodes
