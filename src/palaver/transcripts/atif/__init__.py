"""Agent Trajectory Interchange Format (ATIF), versions 1.0 to 1.8 (docs/spec/dialects.md#5).

Read: a step is a message; the results that an agent's step observed follow it, in one group with it. The trajectories
of sub-agents inside the document are conversations of their own; their bytes stay in the part after the steps.
``is_copied_context`` marks messages of an earlier trajectory: their usage is not counted again. Media is a path or a
URL, and stays one.

Not represented: the proof of reasoning, the order of blocks in an answer, several texts of reasoning, failures of
tools (kept in ``extra``), arguments that are not an object (``{}``, the text in ``extra.raw_arguments``), inline media
(written beside as files), videos and documents, markers, branches (one file each). These are carried in
``extra.palaver`` of the step. Version 1.7 is written, 1.8 if there is audio. A file of an unknown version is read, and
written as it was; an edited one is refused.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from msgspec import structs

from palaver.core.errors import EncodeError
from palaver.threads.thread import MAIN
from palaver.transcripts.atif.arrangement import arranged, inside, laid_over, offspring, same
from palaver.transcripts.atif.reader import RecordReader
from palaver.transcripts.atif.shapes import NAME, PREFIX
from palaver.transcripts.atif.writer import Embedded, RecordWriter
from palaver.transcripts.conversation import session_of
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.writer import History, OnLoss, Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.transcripts.conversation import Transcript
    from palaver.transcripts.writer import WriteState, Written


def detect(head: Head) -> Detection | None:
    """Return a ``schema_version`` of ATIF, or steps with ``step_id`` and ``source``."""
    fields = head.fields
    version = fields.get("schema_version")
    if isinstance(version, str) and version.startswith(PREFIX):
        return Detection(1.0, version.removeprefix(PREFIX))
    steps = fields.get("steps")
    first: object = cast("list[object]", steps)[0] if isinstance(steps, list) and steps else None
    shaped = isinstance(first, dict) and {"step_id", "source"} <= cast("dict[str, object]", first).keys()
    return Detection(0.9) if shaped else None


class Trajectories(TranscriptFormat, frozen=True, kw_only=True):
    """The transcript format: a document is one trajectory with, inside it, those of its sub-agents."""

    def write(
        self,
        transcript: Transcript,
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write one trajectory, as ``TranscriptFormat.write`` does; the main branch, or the requested one."""
        return self._whole(transcript, (), losses, Options(history=history, branch=branch, carry=carry))

    def write_many(
        self,
        transcripts: Iterable[Transcript],
        *,
        losses: OnLoss = "report",
        history: History | None = None,
        branch: str = MAIN,
        carry: bool = True,
    ) -> Written:
        """Write a trajectory with those of its sub-agents inside it.

        Raises ``EncodeError`` when there is not one root of all others, else as ``write`` does.
        """
        given = list(transcripts)
        known = {each.thread.id for each in given}
        roots = [each for each in given if session_of(each.metadata).parent not in known]
        if len(roots) != 1:
            raise EncodeError(f"a {self.name} file has one conversation and its subagents, not {len(roots)}")
        return self._family(roots[0], given, losses, Options(history=history, branch=branch, carry=carry))

    def _family(self, root: Transcript, given: Sequence[Transcript], losses: OnLoss, options: Options) -> Written:
        children = [each for each in given if session_of(each.metadata).parent == root.thread.id and each is not root]
        documents = inside(root) if children else []
        embedded: list[Embedded] = []
        parts: list[Written] = []
        for child in children:
            place = session_of(child.metadata).more.get("place")
            number = place if isinstance(place, int) and 0 <= place < len(documents) else None
            old: Transcript | None = None
            if number is not None:
                old, *others = self.read(documents[number])
                if same([old, *others], list(offspring(child, given))):
                    continue
            part = self._family(child if old is None else laid_over(old, child), given, losses, options)
            parts.append(part)
            embedded.append(Embedded(part.body, number))
        written = self._whole(root, embedded, losses, options)
        every = tuple([loss for part in (written, *parts) for loss in part.losses])
        beside = {name: data for part in (*parts, written) for name, data in part.beside.items()}
        return structs.replace(written, losses=every, beside=beside)

    def _whole(self, transcript: Transcript, embedded: Sequence[Embedded], losses: OnLoss, options: Options) -> Written:
        line, dropped = arranged(transcript, options.branch)
        made: list[RecordWriter] = []
        session = session_of(transcript.metadata)
        named = session.more.get("trajectory_id") or (transcript.thread.id if session.parent else None)

        def rendering(writing: WriteState) -> RecordWriter:
            made.append(RecordWriter(writing, embedded, dropped, named))
            return made[-1]

        file_format = structs.replace(self, record_writer=rendering)
        history, branch, carry = options.history, options.branch, options.carry
        written = TranscriptFormat.write(file_format, line, losses=losses, history=history, branch=branch, carry=carry)
        head = made[0].revised_head()
        return written if head is None else structs.replace(written, chunks=(head, *written.chunks[1:]))


FORMAT: Final = Trajectories(
    name=NAME,
    title="ATIF trajectories (Harbor)",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="document",
    many=True,
    history="all",
    extension=".json",
    keeps=(
        "one text of reasoning an answer",
        "usage and model of each answer",
        "images and audio by path",
        "sub-agents",
        "the sums of a trajectory",
    ),
    loses=(
        "branches (one file each)",
        "proof of reasoning",
        "order of blocks in an answer",
        "inline media (written beside), video, files",
        "tool errors and malformed calls (in extra)",
        "markers",
    ),
)
