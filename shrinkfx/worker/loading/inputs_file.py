"""Read the inputs of a run from a file, and check them against the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shrinkfx.errors import Flag, LoadError, MessageText
from shrinkfx.worker.loading.archive import NESTED, restrict_unpickling, why_unreadable
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.private_api.graph_api import pytree


def read_inputs(path: str) -> tuple[Inputs, Inputs | None]:
    """Read a file that ``torch.save`` wrote, if it holds only data.

    Returns:
        The failing inputs, and the passing inputs if the file has any.

    Raises:
        LoadError: the file has other content.
    """
    try:
        with restrict_unpickling():
            data = torch.load(path, weights_only=True)
    except BaseException as error:
        raise LoadError(path, why_unreadable(error), _ADVICE) from error
    passing = data.pop("passing", None) if isinstance(data, dict) else None
    return as_inputs(path, data), as_inputs(path, passing) if passing else None


_ADVICE = (
    "torch.save((arg, ...), file), or a dict with 'args' and 'kwargs', of tensors, "
    "numbers and strings"
)


def as_inputs(path: str, data: object) -> Inputs:
    """Convert the content of a file to the arguments of a call.

    Raises:
        LoadError: the content has another form.
    """
    if isinstance(data, dict) and set(data) <= {"args", "kwargs"}:
        args, kwargs = data.get("args", ()), data.get("kwargs", {})
        if isinstance(args, (tuple, list)) and isinstance(kwargs, dict):
            return _require_passable(path, Inputs(tuple(args), dict(kwargs)))
    if isinstance(data, (tuple, list)):
        return _require_passable(path, Inputs(tuple(data), {}))
    raise LoadError(path, f"holds a {type(data).__name__}", _ADVICE)


def _require_passable(path: str, inputs: Inputs) -> Inputs:
    """Refuse inputs that no exported program takes, with the file as the subject."""
    for name in inputs.kwargs:
        if not isinstance(name, str):
            reason = f"'kwargs' has the key {name!r:.60}, which is not a string"
            raise LoadError(path, reason, _ADVICE)
    for leaf in inputs.flat():
        if isinstance(leaf, torch.Tensor) and leaf.is_nested:
            raise LoadError(path, *NESTED)
    return inputs


def sort_keywords_like(example: Inputs, inputs: Inputs) -> Inputs:
    """Put keyword arguments in the program's order, if the names are the same."""
    if set(inputs.kwargs) != set(example.kwargs):
        return inputs
    return replace(
        inputs, kwargs={name: inputs.kwargs[name] for name in example.kwargs}
    )


def require_same_structure(
    path: str, example: Inputs, inputs: Inputs, names: Sequence[str] = ()
) -> None:
    """Refuse inputs of another number, structure, dtype, rank or device.

    Args:
        names: the program's names of its positional inputs, as far as they are known.

    Raises:
        LoadError: the inputs do not fit; says which, and what the program expects.
    """
    _require_same_number(path, example, inputs, names)
    expected, spec = pytree.tree_flatten((example.args, example.kwargs))
    leaves, inputs_spec = pytree.tree_flatten((inputs.args, inputs.kwargs))
    if spec != inputs_spec:
        raise LoadError(
            path,
            f"the inputs are nested as {inputs_spec}",
            f"the program expects {spec}",
        )
    for position, (a, b) in enumerate(zip(expected, leaves, strict=True)):
        if not isinstance(a, torch.Tensor):
            continue
        if not isinstance(b, torch.Tensor) or _type_of(a) != _type_of(b):
            raise LoadError(
                path,
                f"input {position} is {_describe(b)}",
                f"the program expects {_describe(a)}",
            )
        if a.device != b.device:
            raise LoadError(
                path,
                f"input {position} is on {b.device}, not on {a.device}",
                MessageText(
                    "the program expects it there, and what is compiled for one device "
                    "takes no other: ",
                    Flag("--device", str(a.device)),
                    " moves both",
                ),
            )


def _require_same_number(
    path: str, example: Inputs, inputs: Inputs, names: Sequence[str]
) -> None:
    count, expected = len(inputs.args), len(example.args)
    if count == expected and set(inputs.kwargs) == set(example.kwargs):
        return
    named = [*names[:expected], *(f"input{n}" for n in range(len(names), expected))]
    listed = f" ({', '.join(named)})" if named else ""
    actual = f"{count} positional input{'' if count == 1 else 's'}"
    takes = f"the program takes {expected}{listed}{_by_keyword(example)}"
    call = f"({named[0]},)" if expected == 1 else f"({', '.join(named)})"
    if example.kwargs:
        keywords = ", ".join(f"{name!r}: {name}" for name in example.kwargs)
        call = f"{{'args': {call}, 'kwargs': {{{keywords}}}}}"
    raise LoadError(
        path,
        f"{actual}{_by_keyword(inputs)}, {takes}",
        f"the program expects what torch.save({call}, file) writes",
    )


def _by_keyword(inputs: Inputs) -> str:
    return f" and by keyword {', '.join(inputs.kwargs)}" if inputs.kwargs else ""


def _type_of(tensor: torch.Tensor) -> tuple[torch.dtype, int]:
    return tensor.dtype, tensor.dim()


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)} on {value.device.type}"
    return type(value).__name__
