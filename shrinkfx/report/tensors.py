"""The expression for each weight and input of a repro."""

from __future__ import annotations

from enum import StrEnum

from shrinkfx.protocol.source import Expression

DATA = "repro_inputs.pt"


class Data(StrEnum):
    """The source of the values of weights and inputs, simplest first."""

    SEEDED = "seeded"
    EXACT_INPUTS = "exact inputs"
    EXACT_WEIGHTS = "exact weights"
    EXACT = "exact"


class Values:
    """Chooses the expression of each tensor, and records the helpers that it needs."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._texts: list[str] = []
        self.needs_data = False

    def weight(self, name: str, written: Expression) -> str:
        exact = self._data in (Data.EXACT_WEIGHTS, Data.EXACT)
        return self._choose(name, written, exact)

    def example(self, name: str, written: Expression) -> str:
        """Return the expression of an example input.

        Any values do, because only export reads them.
        """
        return self._choose(name, written, exact=False)

    def input(self, name: str, written: Expression) -> str:
        exact = self._data in (Data.EXACT_INPUTS, Data.EXACT)
        return self._choose(name, written, exact)

    def _choose(self, name: str, written: Expression, exact: bool) -> str:
        text = written.exact if exact else written.seeded
        if not text:
            self.needs_data = True
            text = f'data["{name}"]'
        self._texts.append(text)
        return text

    def helpers(self) -> list[str]:
        """Return the helper functions and statements that the expressions use."""
        helpers = []
        if any(text.startswith("script_object(") for text in self._texts):
            helpers.append(SCRIPT_OBJECT)
        if any("unpack(" in text for text in self._texts):
            helpers.append(_UNPACK)
        if self.needs_data:
            helpers.append(f'data = torch.load("{DATA}", weights_only=True)')
        if any("torch.rand" in text for text in self._texts):
            helpers.append("torch.manual_seed(0)")
        return helpers


_UNPACK = '''
def unpack(text, dtype, shape):
    """Exact values, compressed."""
    import base64
    import zlib

    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)
'''


SCRIPT_OBJECT = '''
def script_object(state, name):
    """An object of a class in C++, as it was saved."""
    made = torch.ScriptObject.__new__(torch.ScriptObject)
    made.__setstate__((state, name))
    return made
'''
