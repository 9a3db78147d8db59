"""Generated Claude Code folders: as many sessions and bytes as asked for, the same for the same seed.

The records are what the program writes (docs/spec/dialects.md#2): one block a record, usage repeated, results with a
copy for the UI, progress and snapshots between them, images in base64, one session in ten the fork of another. Written
with the standard library's JSON, not with ours.
"""

from __future__ import annotations

import base64
import json
import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WORDS = (
    "the file says that this function returns a list of rows but the caller wants one row only so I will change it and "
    "run the tests again because they failed with an error in line twelve of the parser where a bracket is missing"
).split()
_TOOLS = ("Read", "Edit", "Bash", "Grep", "Write")


class _Session:
    def __init__(self, chance: random.Random, project: str) -> None:
        self.chance = chance
        self.id = self._uuid()
        self.project = project
        self.parent: str | None = None
        self.time = 1_767_323_045_000 + chance.randrange(10**9)
        self.lines: list[bytes] = []
        self.size = 0

    def _uuid(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def text(self, words: int) -> str:
        return " ".join(self.chance.choices(_WORDS, k=words))

    def put(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self.lines.append(line)
        self.size += len(line)

    def link(self, kind: str, **fields: Any) -> str:
        """Put a record of the chain."""
        uuid = self._uuid()
        self.time += self.chance.randrange(10, 5000)
        day, hour, minute = self.time // 86_400_000 % 28 + 1, self.time // 3_600_000 % 24, self.time // 60_000 % 60
        at = f"2026-01-{day:02d}T{hour:02d}:{minute:02d}"
        self.put(
            {
                "parentUuid": self.parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": f"/home/me/{self.project}",
                "sessionId": self.id,
                "version": "2.1.0",
                "gitBranch": "main",
                "type": kind,
                **fields,
                "uuid": uuid,
                "timestamp": f"{at}:{self.time // 1000 % 60:02d}.{self.time % 1000:03d}Z",
            }
        )
        self.parent = uuid
        return uuid

    def turn(self, image: str | None) -> None:
        """A prompt, and the rounds that answer it."""
        prompt: Any = self.text(self.chance.randrange(5, 60))
        if image is not None:
            source = {"type": "base64", "media_type": "image/png", "data": image}
            prompt = [{"type": "text", "text": prompt}, {"type": "image", "source": source}]
        message = {"role": "user", "content": prompt}
        self.put(
            {"type": "file-history-snapshot", "messageId": self._uuid(), "snapshot": {}, "isSnapshotUpdate": False}
        )
        self.link("user", message=message)
        for _ in range(self.chance.randrange(1, 8)):
            self.round()
        self.answer([{"type": "text", "text": self.text(self.chance.randrange(20, 200))}], "end_turn")

    def answer(self, blocks: list[dict[str, Any]], stop: str) -> None:
        number = f"{self.chance.getrandbits(80):020x}"
        for place, block in enumerate(blocks):
            usage = {
                "input_tokens": 4,
                "cache_creation_input_tokens": 800,
                "cache_read_input_tokens": 20_000,
                "output_tokens": 3 + 200 * place,
                "service_tier": "standard",
            }
            message = {
                "model": "claude-sonnet-4-5-20250929",
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop if place == len(blocks) - 1 else None,
                "stop_sequence": None,
                "usage": usage,
            }
            self.link("assistant", message=message, requestId=f"req_{number}")

    def round(self) -> None:
        """A thought, a word, a call, its progress and its result."""
        call = f"toolu_{self.chance.getrandbits(96):024x}"
        tool = self.chance.choice(_TOOLS)
        given = {"file_path": f"/home/me/{self.project}/src/{self.chance.randrange(99)}.py", "what": self.text(12)}
        blocks: list[dict[str, Any]] = [
            {
                "type": "thinking",
                "thinking": self.text(40),
                "signature": base64.b64encode(self.chance.randbytes(300)).decode(),
            },
            {"type": "text", "text": self.text(15)},
            {"type": "tool_use", "id": call, "name": tool, "input": given},
        ]
        self.answer(blocks[self.chance.randrange(3) :], "tool_use")
        asked = self.parent
        if self.chance.random() < 0.3:
            self.link("progress", data={"type": "bash_progress", "output": self.text(5)}, toolUseID=call)
        output = "\n".join(self.text(10) for _ in range(min(int(self.chance.lognormvariate(2.5, 1.2)), 2000)))
        block = {"tool_use_id": call, "type": "tool_result", "content": output}
        self.link(
            "user",
            message={"role": "user", "content": [block]},
            toolUseResult={"stdout": output, "stderr": "", "interrupted": False, "isImage": False},
            sourceToolAssistantUUID=asked,
        )


def generate(folder: Path, *, sessions: int, size: int, seed: int = 8) -> Iterator[int]:
    """Write about ``size`` bytes of sessions into a folder; give the bytes written, session by session."""
    chance = random.Random(seed)
    images = [base64.b64encode(chance.randbytes(60_000)).decode() for _ in range(20)]
    before: _Session | None = None
    written = 0
    for number in range(sessions):
        project = f"project-{number % 40}"
        session = _Session(chance, project)
        wanted = chance.lognormvariate(0, 0.8) * size / sessions / 1.38
        if before is not None and number % 10 == 9:  # a fork: the chain of another, under its own name
            half = before.lines[: len(before.lines) // 2]
            session.lines = [line.replace(before.id.encode(), session.id.encode()) for line in half]
            session.size = sum(map(len, session.lines))
        while session.size < wanted:
            session.turn(chance.choice(images) if chance.random() < 0.03 else None)
        place = folder / f"-home-me-{project}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{session.id}.jsonl").write_bytes(b"".join(session.lines))
        written += session.size
        before = session
        yield session.size
