"""Calls of a library as rows of a table: names, the types they exist for, and their parameters.

How this works: a parameter is a word, its name with a sign in front that says what it is. ``*`` a
device pointer; ``@`` a handle or descriptor, ``?`` one that may be null, ``+`` one that the call
makes, ``-`` one that it ends; ``$`` a scalar in host or device memory as the pointer mode says,
``!`` an int that goes there; ``>`` a number that comes back, ``=`` one that the arguments alone
decide, ``<`` one that goes and comes back; ``#`` bytes of host memory that go, ``#?`` bytes or
null, ``%`` that come back, ``~`` that only the library uses. Without a sign it is a number. After a
dot follows its type (``l`` 64 bits, ``z`` size_t, ``c`` char, ``d`` double; int if there is none;
of a scalar a letter of SDCZ, or ``x`` as the parameter ``computeType`` says; else the type of the
routine), after a colon the kind of a handle, or the length of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mnemosyne.api.spec import Call, Field, Kind, Mode, Way
from mnemosyne.api.words import BYTES, HANDLE, PTR, RESULT, SCALAR, SCRATCH

_NUMBERS = {
    "": (Kind.INT, "int"), "l": (Kind.INT, "long long"), "z": (Kind.INT, "size_t"),
    "c": (Kind.INT, "signed char"), "d": (Kind.REAL, "double"),
}  # fmt: skip
_SCALARS = {"S": "4", "D": "8", "C": "8", "Z": "16", "x": "data_size(computeType)"}

#: What a call leaves behind for its handle, as the last column of a row.
KEEPS, LOSES = "keeps", "loses"

Row = tuple[str, ...]  # name with {} for a type, types, parameters, KEEPS or LOSES if either


@dataclass(frozen=True)
class Library:
    """``handles``: kinds as the words spell them, and the library's names of their types.

    ``described``: those that are only settings.
    """

    name: str
    result: str
    handles: Mapping[str, str]
    handle_ctype: str = "void*"
    described: tuple[str, ...] = ()

    def calls(self, *rows: Row) -> list[Call]:
        return [call for row in rows for call in self._calls(*row)]

    def _calls(self, pattern: str, types: str, words: str, left: str = "") -> list[Call]:
        return [
            self._call(pattern.format(letter), letter, words.split(), left)
            for letter in types.split() or [""]
        ]

    def _call(self, name: str, letter: str, words: list[str], left: str) -> Call:
        params = tuple(self._field(word, letter) for word in words)
        sets = left == KEEPS or any(p.way in (Way.NEW, Way.GONE) for p in params)
        runs = not sets and left != LOSES
        described = sets and params[0].of in [self.handles[kind] for kind in self.described]
        decided = any(word.startswith("=") for word in words)
        return Call(
            name, self.name, _mode(params, sets), params, self.result, journal=sets,
            via=f"{self.name}_{'run' if runs else 'call'}", lossy=left == LOSES,
            decided=decided, described=described, reason=_reason(decided, described),
        )  # fmt: skip

    def _field(self, word: str, letter: str) -> Field:
        make = _MAKERS.get(word[0])
        if make is None:
            return _number(word)
        return make(self, word[1:], letter)

    def handle(self, word: str) -> Field:
        name, _, kind = word.partition(":")
        return HANDLE(name, self.handles[kind or name], self.handle_ctype)


def _mode(params: tuple[Field, ...], sets: bool) -> Mode:
    """Waited for is what something comes back from; what makes, sets or ends never fails soon."""
    if any(p.way in (Way.OUT, Way.INOUT) for p in params):
        return Mode.SYNC
    return Mode.ASYNC if sets else Mode.ONCE


def _reason(decided: bool, described: bool) -> str:
    if decided:
        return "asked once for the same arguments"
    return "sent when a routine uses it" if described else ""


def _number(word: str) -> Field:
    name, _, suffix = word.partition(".")
    return Field(name, *_NUMBERS[suffix])


def _scalar(word: str, letter: str) -> Field:
    name, _, suffix = word.partition(".")
    return SCALAR(name, _SCALARS[suffix or letter])


def _bytes(word: str) -> Field:
    name, _, size = word.partition(":")
    made = BYTES(name.removeprefix("?"), size.replace("*", " * "))
    return made.or_null if name.startswith("?") else made


def _scratch(word: str) -> Field:
    name, _, size = word.partition(":")
    return SCRATCH(name, size)


_MAKERS: dict[str, Callable[[Library, str, str], Field]] = {
    "*": lambda library, word, letter: PTR(word),
    "@": lambda library, word, letter: library.handle(word),
    "?": lambda library, word, letter: library.handle(word).or_null,
    "+": lambda library, word, letter: library.handle(word).new,
    "-": lambda library, word, letter: library.handle(word).gone,
    "$": lambda library, word, letter: _scalar(word, letter),
    "!": lambda library, word, letter: RESULT(word, "4"),
    ">": lambda library, word, letter: _number(word).out,
    "=": lambda library, word, letter: _number(word).out,
    "<": lambda library, word, letter: _number(word).inout,
    "#": lambda library, word, letter: _bytes(word),
    "%": lambda library, word, letter: _bytes(word).out,
    "~": lambda library, word, letter: _scratch(word),
}


def variants(*rows: Row) -> dict[str, tuple[str, str]]:
    """By the name of a call: the name of its row, and its type (or "")."""
    return {
        pattern.format(letter): (pattern, letter)
        for pattern, types, *_ in rows
        for letter in types.split() or [""]
    }
