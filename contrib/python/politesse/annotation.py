"""The annotation field `Robots-Directives`, as the proxy writes it.

A dictionary of inner lists in Structured Fields (RFC 9651). Needs Python alone, and
also reads the members of `Proxy-Status`. Does not know where the fields come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

Value = Union[bool, int, float, str, datetime]
"""Value of a parameter. Tokens and strings are `str`. A date that `datetime` cannot
express is an `int`, in seconds since 1970."""

_KEY = r"[a-z*][a-z0-9_.*-]*"
_BARE = (
    r"(?:\"(?:[ !#-\[\]-~]|\\[\"\\])*\""  # string
    r"|-?[0-9]{1,12}\.[0-9]{1,3}|@?-?[0-9]{1,15}|\?[01]"  # decimal, integer or date, boolean
    r"|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*"  # token
    r"|:[A-Za-z0-9+/=]*:|%\"[ !#-~]*\")"  # bytes, display string
)
_PARAMETERS = rf"(?:; *{_KEY}(?:={_BARE})?)*"
_ITEM = rf"({_BARE})({_PARAMETERS})"
_INNER_LIST = rf"({_KEY})=\(((?: *{_BARE}{_PARAMETERS}(?=[ )]))*) *\)({_PARAMETERS})"


class Directive(NamedTuple):
    """A directive in force."""

    name: str
    value: Value
    """`True` for a directive without a value."""
    sources: str
    """Letters of the places that said it, separated by spaces: `x m`."""


@dataclass(frozen=True)
class Annotation:
    """The directives that bind one crawler on a page."""

    directives: Tuple[Directive, ...]
    state: str
    """How much was read: `complete`, `partial` or `unknown`."""
    why: Optional[str]
    """Why the rest was not read."""

    def has(self, name: str) -> Optional[bool]:
        """Reports whether a directive is in force; `None` if that is unknown."""
        if any(directive.name == name for directive in self.directives):
            return True
        return False if self.state == "complete" else None


def parse(field: str) -> Dict[str, Annotation]:
    """Returns the annotation for each crawler, by product token in lower case.

    Empty if the field is malformed: then everything is unknown. A key without a
    state is left out: `outside` lists directives that are never in force.
    """
    annotations = {}
    for key, items, text in _members(_INNER_LIST, field):
        parameters = _parameters(text)
        if "state" in parameters:
            why = parameters.get("why")
            annotations[key] = Annotation(
                tuple(_directive(*item) for item in re.findall(_ITEM, items)),
                str(parameters["state"]),
                None if why is None else str(why),
            )
    return annotations


def proxy_status(field: str) -> List[Tuple[Value, Dict[str, Value]]]:
    """Returns name and parameters of each member of `Proxy-Status` (RFC 9209)."""
    return [(_value(name), _parameters(text)) for name, text in _members(_ITEM, field)]


def _members(pattern: str, field: str) -> List[Tuple[str, ...]]:
    """Returns the groups of each member of a field; none if any member is malformed."""
    text = field.strip(" ")
    if not re.fullmatch(rf"{pattern}(?:[ \t]*,[ \t]*{pattern})*", text):
        return []
    return re.findall(pattern, text)


def _directive(name: str, text: str) -> Directive:
    parameters = _parameters(text)
    return Directive(name, parameters.get("value", True), str(parameters.get("src", "")))


def _parameters(text: str) -> Dict[str, Value]:
    return {key: _value(value) for key, value in re.findall(rf"; *({_KEY})(?:=({_BARE}))?", text)}


def _value(text: str) -> Value:
    """Returns the value of a bare item; `True` for a parameter without one."""
    if not text:
        return True
    if text[0] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text[0] == "@":
        try:
            return datetime.fromtimestamp(int(text[1:]), timezone.utc)
        except (OSError, OverflowError, ValueError):
            return int(text[1:])
    if text[0] in "-0123456789":
        return float(text) if "." in text else int(text)
    return text == "?1" if text[0] == "?" else text
