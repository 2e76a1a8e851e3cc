"""Triton's interpreter, faster: it patches its language at every call of a device function, which takes half its time.

A launch patches the language and restores it. Calls within it find the language patched; a second time changes nothing.
"""

import triton.language as tl
from triton.runtime import interpreter

_patch_language = interpreter._patch_lang
_patched: set[tuple[str, ...]] = set()  # the modules that were patched during the launch that is running


class _Nothing:
    def restore(self) -> None:
        """Only the launch restores."""


def _patch_once(function):
    modules = tuple(name for name, value in function.__globals__.items() if value is tl or value is tl.core)
    if modules in _patched:
        return _Nothing()
    scope = _patch_language(function)
    if not _patched:  # the launch itself
        restore = scope.restore

        def restore_and_forget() -> None:
            _patched.clear()
            restore()

        scope.restore = restore_and_forget
    _patched.add(modules)
    return scope


def install() -> None:
    """Patch once a launch from now on."""
    interpreter._patch_lang = _patch_once
