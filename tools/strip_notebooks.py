"""Remove the output of notebooks: python tools/strip_notebooks.py FILE ...; exit code 1 if one had any."""

import json
import sys
from pathlib import Path

changed = 0
for name in sys.argv[1:]:
    path = Path(name)
    before = path.read_text(encoding="utf-8")
    notebook = json.loads(before)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    after = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if after != before:
        path.write_text(after, encoding="utf-8")
        print(f"{path}: output removed")
        changed = 1
sys.exit(changed)
