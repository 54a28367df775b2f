"""Test of rewrites: which ones make a valid program, according to fake tensors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.protocol.answers import Fitted, Typed
from shrinkfx.worker.listing.fakes import Trace
from shrinkfx.worker.listing.repair import Fitter


def fit_rewrites(
    listing: PrintedProgram,
    rewrites: Sequence[Rewrite],
    saved: Mapping[str, torch.Tensor] | None = None,
) -> Fitted:
    """Complete each rewrite to a valid program, independently of the others.

    Args:
        saved: saved values by the keys of tensor specs.
    """
    with _silence_fake_tensors():
        fitter = Fitter(listing, saved or {})
        fits = tuple(_fit(fitter, rewrite) for rewrite in rewrites)
    misfit = str(fitter.base.misfit or "")
    return Fitted(fits, tuple(_describe_values(fitter.base)), misfit)


@contextmanager
def _silence_fake_tensors() -> Iterator[None]:
    """Keep fake tensors from logging a traceback for each invalid operator."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def _fit(fitter: Fitter, rewrite: Rewrite) -> Rewrite | None:
    changes = rewrite.changes
    fitted = fitter.fit(changes)
    if fitted is None and rewrite.partly:
        fitted = fitter.fit(_fitting(fitter, changes))
    return Rewrite(fitted) if fitted else None


def _fitting(fitter: Fitter, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Keep each change that fits together with those kept before."""
    accepted: tuple[Change, ...] = ()
    for change in changes:
        if fitter.fit((*accepted, change)) is not None:
            accepted = (*accepted, change)
    return accepted


def _describe_values(trace: Trace) -> Iterator[Typed]:
    """Describe each value that is a single strided tensor."""
    for (block, name), value in trace.values.items():
        match value.what:
            case torch.Tensor(layout=torch.strided) as fake:
                yield Typed(
                    block=block,
                    name=name,
                    dtype=str(fake.dtype).removeprefix("torch."),
                    shape=tuple(fake.shape),
                    stride=tuple(fake.stride()),
                    device=str(fake.device),
                )
