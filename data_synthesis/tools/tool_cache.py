"""What tools have fetched, on disk by content: a resumed or repeated run pays nothing twice."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path

from condensery.trajectory import content_id


class ToolCache:
    """One SQLite file; many tasks and processes may share it, and a kill leaves it whole. Failures are never
    kept: a value is what was made without an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._running: dict[str, asyncio.Task] = {}

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """Opened with the first request: a run that was not started leaves no file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT)")
        return connection

    async def get(self, request: list, make: Callable[[], Awaitable[object]]) -> object:
        """The stored result of a request, or a new one, which is stored; of equal requests at once one is
        made. `request` names the backend, too."""
        key = content_id(request)
        row = self.connection.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        if row:
            return json.loads(row[0])
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._make(key, make))
            self._running[key].add_done_callback(lambda _: self._running.pop(key))
        # One who waits may run out of time, and takes nothing from the others.
        return await asyncio.shield(self._running[key])

    async def _make(self, key: str, make: Callable[[], Awaitable[object]]) -> object:
        value = await make()
        self.connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, json.dumps(value)))
        return value

    def close(self) -> None:
        if opened := vars(self).pop("connection", None):
            opened.close()
