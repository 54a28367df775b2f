"""An operator whose result is not what its fake kernel says, or no truth at all."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.operators import OF_VALUES, TensorFacts, What
from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.operators import Operator

NOT_AS_DECLARED = "returns a result that its fake kernel does not declare"
"""What a chain says of one that a kernel has died of."""


@dataclass(frozen=True)
class Lie(Message):
    """An operator that is left, and what it says that is not so.

    Attributes:
        said: what of it is otherwise, at the sizes of the result.
        fake_kernel: file and line of its fake kernel, or ''.
        in_original: ``said`` tells of the original instead, whose sizes need not be
            the result's: that was not examined, or today's fake kernel is right.
        result: which of several results it is of, ``[1]``; or ''.
        declared, made: that result, as it is promised and as it is; None where that
            is not known, or not what is wrong.
        what: is wrong with it; of ``OF_VALUES`` where eager itself is no truth.
    """

    operator: Operator
    said: str
    fake_kernel: str = ""
    in_original: bool = False
    result: str = ""
    declared: TensorFacts | None = None
    made: TensorFacts | None = None
    what: What = What.FAKE

    @property
    def sentence(self) -> str:
        """State it as the cause of a failure."""
        if self.is_of_values:
            return f"{self.operator} {self.said}."
        where = " in the input program" if self.in_original else ""
        return f"Fake-kernel mismatch{where}: {self.operator} {self._placed()}."

    @property
    def is_of_values(self) -> bool:
        """Tell whether its values hang on more than those of its arguments."""
        return self.what in OF_VALUES

    @property
    def place(self) -> str:
        """File and line of its fake kernel, without folders; or ''."""
        return self.fake_kernel.rpartition("/")[2]

    def _placed(self) -> str:
        kernel = f"fake kernel ({self.place})" if self.place else "fake kernel"
        return self.said.replace("fake kernel", kernel, 1)
