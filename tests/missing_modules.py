"""Run Python in a process in which some modules cannot be imported, as if they were not installed."""

import subprocess
import sys

_HIDE = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
for name in [name for name in sys.modules if name.partition(".")[0] in HIDDEN]:
    del sys.modules[name]
"""


def run_without(modules, code, *arguments, cwd):
    """Run code without these modules; `arguments` are its sys.argv[1:]."""
    command = [sys.executable, "-c", f"HIDDEN = {set(modules)!r}\n{_HIDE}\n{code}", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
