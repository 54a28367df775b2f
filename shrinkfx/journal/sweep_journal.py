"""The record of a sweep's examples, in the same file as the journal of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shrinkfx.journal.database import Database, boot_id, why_not_again
from shrinkfx.program.sizes import Sizes
from shrinkfx.sweep.examples import Answer, Example


class SweepJournal:
    """Records the examples of a sweep, so that it can resume after a kill.

    Args:
        part: the part of the sweep, because several parts may run the same sizes.
    """

    def __init__(self, path: Path | str, part: str = "inside") -> None:
        self._db = Database(path)
        self._part = part
        self._boot = boot_id()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store the settings that all examples share."""
        row = ("sweep", json.dumps(settings))
        self._db.write("INSERT INTO facts VALUES (?, ?)", row)

    def settings(self) -> dict[str, Any]:
        """Return the settings that all examples share; empty if there was no sweep."""
        rows = self._db.read("SELECT value FROM facts WHERE name='sweep'")
        with self._db.checked_decoding():
            settings: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
        return settings

    def recall(self, sizes: Sizes, attempt: int) -> Example | None:
        """Return a recorded example, or None if its sizes have to be run.

        Sizes that did not end twice return UNRESOLVED, and are never run again.
        """
        rows = self._db.read(
            "SELECT example, boot FROM examples WHERE part=? AND sizes=? AND attempt=?",
            (self._part, json.dumps(sizes), attempt),
        )
        for text, _ in rows:
            if text is not None:
                with self._db.checked_decoding():
                    return Example.from_json(json.loads(text))
        why = why_not_again([boot for _, boot in rows], self._boot)
        return Example(sizes, Answer.UNRESOLVED, reason=why) if why else None

    def count(self) -> int:
        """Count the examples of all parts that have an answer."""
        count = "SELECT count(*) FROM examples WHERE example IS NOT NULL"
        return int(self._db.read(count)[0][0])

    def record_start(self, sizes: Sizes, attempt: int) -> int:
        """Record that sizes are about to be run, and return the row number."""
        row = (time.time(), self._boot, self._part, json.dumps(sizes), attempt)
        return self._db.write(
            "INSERT INTO examples (asked_at, boot, part, sizes, attempt)"
            " VALUES (?, ?, ?, ?, ?)",
            row,
        )

    def record_example(self, number: int, example: Example) -> None:
        row = (json.dumps(example.to_json()), number)
        self._db.write("UPDATE examples SET example=? WHERE number=?", row)

    def delete_start(self, number: int) -> None:
        """Delete an example that was not run after all."""
        self._db.write("DELETE FROM examples WHERE number=?", (number,))

    def close(self) -> None:
        self._db.close()
