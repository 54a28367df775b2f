"""What a server prepares before it forks, and what may keep it from that."""

from __future__ import annotations

import pytest
import torch._inductor.cpu_vec_isa

from shrinkfx.errors import LoadError
from shrinkfx.worker.aoti import backend as aoti


def test_lock_timeout_is_not_reported_as_a_missing_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waits() -> None:
        raise TimeoutError("The file lock 'x.lock' could not be acquired.")

    monkeypatch.setattr(torch._inductor.cpu_vec_isa, "pick_vec_isa", waits)
    with pytest.raises(LoadError) as refused:
        aoti.warm_up()
    assert "could not be acquired" in refused.value.reason
    assert "g++" not in str(refused.value.advice)
    assert "TORCHINDUCTOR_CACHE_DIR" in str(refused.value.advice)
