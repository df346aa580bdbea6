"""Ways in which a valid file can be made to lie: bytes changed, cut, doubled; values of another kind."""

import copy
import json
import math

from hypothesis import strategies as st

# Stand-ins for what json cannot write: thousands of brackets, and numbers of thousands of digits.
_DEEP, _HUGE, _HUGE_HEX = "@deep@", "@huge@", "@huge hex@"
STRANGE = (
    None, True, False, -1, 0, 1, 7, 10**9, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf,
    "", "0", "../../x", "/etc/passwd", "os:system", "trap:make", "trap", "a\nb", "\x1b[2J", "\x00", "\ud800",
    "é" * 3000,
    [], {}, [[]], [None], {"": 0}, ["a", "a"], [0] * 3000, [10**6] * 3, [10**6, 10**6, 10**6],
    _DEEP, _HUGE, _HUGE_HEX,
)  # fmt: skip
_PIECES = (
    b"\0" * 8, b"\xff" * 8, b"\x00\x00\x00\x80", b"\x7f\xff\xff\xff", b"\n", b'"', b"{", b"[" * 40, b"../", b"9" * 30,
    b"NaN", b"-", b"\xc3\x28", b"\x80\x04.", b"1e400",
)  # fmt: skip

_places = st.one_of(st.integers(0, 300), st.integers(0, 2**20))
_edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "cut", "insert", "drop", "double", "splice"]),
        _places,
        st.integers(0, 64),
        _places,
        st.one_of(st.sampled_from(_PIECES), st.binary(min_size=1, max_size=6)),
    ),
    min_size=1,
    max_size=3,
)
_changes = st.lists(
    st.tuples(
        st.sampled_from(["replace", "replace", "nudge", "nudge", "remove", "rename", "wrap", "swap", "double"]),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
        st.sampled_from(range(len(STRANGE))),
    ),
    min_size=1,
    max_size=3,
)


def bytes_changed(content):
    """Strategy: the content with one to three edits of its bytes."""
    return _edits.map(lambda edits: _edit_all(content, edits))


def values_changed(document):
    """Strategy: a document of dicts and lists with one to three of its values changed."""
    return _changes.map(lambda changes: _change_all(document, changes))


def as_json(value):
    return _spelled(json.dumps(value)).encode("utf-8", "surrogatepass")


def as_toml(document):
    """TOML of a mapping; what TOML cannot say is left out."""
    if not isinstance(document, dict):
        return as_json(document)
    lines = [f"{json.dumps(str(key))} = {_toml(value)}" for key, value in document.items() if value is not None]
    return _spelled("\n".join(lines)).encode("utf-8", "surrogatepass")


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value if item is not None) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value)


def _spelled(text):
    spelled = {_DEEP: "[" * 3000 + "]" * 3000, _HUGE: "9" * 5000, _HUGE_HEX: "0x" + "f" * 9000}
    for name, meaning in spelled.items():
        text = text.replace(json.dumps(name), meaning)
    return text


def _edit_all(content, edits):
    for kind, place, length, other, piece in edits:
        at, to = place % (len(content) + 1), other % (len(content) + 1)
        slices = content[at : at + length]
        if kind == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ (1 << length % 8)]) + content[at + 1 :]
        elif kind == "set":
            content = content[:at] + piece + content[at + len(piece) :]
        elif kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + piece + content[at:]
        elif kind == "drop":
            content = content[:at] + content[at + length :]
        elif kind == "double":
            content = content[:at] + slices * 2 + content[at + length :]
        elif kind == "splice":
            content = content[:to] + slices + content[to + length :]
    return content


def _change_all(document, changes):
    root = [copy.deepcopy(document)]
    for kind, place, other, strange in changes:
        slots = _slots(root)
        holder, key = slots[place % len(slots)]
        if kind == "replace":
            holder[key] = copy.deepcopy(STRANGE[strange])
        elif kind == "nudge":
            holder[key] = _nudged(holder[key], other)
        elif kind == "remove" and holder is not root:
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[f"{key}\n"] = holder.pop(key)
        elif kind == "wrap":
            holder[key] = [holder[key]]
        elif kind == "swap":
            there, its = slots[other % len(slots)]
            holder[key], there[its] = copy.deepcopy(there[its]), copy.deepcopy(holder[key])
        elif kind == "double" and isinstance(holder, list) and holder is not root:
            holder.append(copy.deepcopy(holder[key]))
    return root[0]


def _nudged(value, other):
    """A value of the same kind that contradicts the values around it."""
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int):
        return (value + 1, value - 1, 2 * value, -value)[other % 4]
    if isinstance(value, float):
        return (1.01 * value, 1 - value, -value, value + 1e-9)[other % 4]
    if isinstance(value, list):
        return (value[:-1], value[::-1], value + value[-1:])[other % 3]
    return dict(reversed(value.items()))


def _slots(root):
    """Every place of a value: what holds it, and its key there."""
    found, queue = [], [(root, 0)]
    while queue:
        holder, key = queue.pop()
        found.append((holder, key))
        value = holder[key]
        if isinstance(value, dict):
            queue += [(value, name) for name in value]
        elif isinstance(value, list) and len(value) < 100:
            queue += [(value, place) for place in range(len(value))]
    return found
