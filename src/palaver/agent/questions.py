"""Questions that the model asks the user, with the tool ``ask_user``.

Rules (docs/spec/deepagents-swift.md#8.2, DAS-26):

- A question is free text, one choice of several, or any number of them. Which, may be left out: with choices it is
  ``multiple_choice``. Questions may be objects or text, alone or in a list, or a list written as text; a question and
  its choices go by several names.
- Refused are: no question, a blank one, a type of choices without choices, free text with choices.
- The result is ``Q: …`` and ``A: …`` for each question, blank lines between. A question without answer has
  ``(no answer)``; all of them have ``(cancelled)`` or ``(error: …)`` when the user did, or could, not answer.
- Without a function that asks, the tool is answered like an approval that can only be answered: by ``decide`` or
  ``decisions``, perhaps days later, with ``answered(request, …)``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct, structs

from palaver.agent import lenient_arguments
from palaver.core.errors import ToolError
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.turn.approvals import ApprovalRequest, Decision, answer
from palaver.turn.tool import AgentTool, InvalidArgumentsError, Output, Rule, ToolContext

Kind: TypeAlias = Literal["text", "multiple_choice", "multi_select"]

ASK_USER: Final = "ask_user"

_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "multiple_choice": "multiple_choice",
    "multi_select": "multi_select",
}
_QUESTION: Final = ("question", "text", "prompt", "title")
_CHOICES: Final = ("choices", "options")
_CHOICE: Final = ("value", "label", "text", "title", "name")


class Question(Struct, frozen=True):
    """One question. ``required`` asks whoever shows it not to let it be skipped."""

    question: str
    type: Kind = "text"
    choices: tuple[str, ...] = ()
    required: bool = True

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Question", Question, structs.asdict(self))


class Answers(Struct, frozen=True):
    """What the user said: an answer for each question, in order; several choices are a sequence."""

    answers: tuple[str | Sequence[str] | None, ...] = ()
    cancelled: bool = False
    error: str | None = None

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Answers", Answers, structs.asdict(self))


def parse_questions(given: Any) -> tuple[Question, ...]:
    """Read questions out of parsed arguments. Raises ``InvalidArgumentsError`` naming the place."""
    items = lenient_arguments.items(given, "questions")
    if not items:
        raise InvalidArgumentsError("questions: at least one question is needed")
    return tuple([_question(item, f"questions[{index}]") for index, item in enumerate(items)])


def _question(item: Any, where: str) -> Question:
    question = lenient_arguments.text(item, _QUESTION)
    if question is None:
        raise InvalidArgumentsError(f"{where}: the question is blank")
    if not isinstance(item, dict):
        return Question(question)
    fields = cast("dict[str, Any]", item)
    choices = _choices(fields)
    said = (lenient_arguments.text(fields.get("type"), ()) or "").lower().replace("-", "_").replace(" ", "_")
    kind = _KINDS.get(said, "multiple_choice" if choices else "text")
    if kind == "text" and choices:
        raise InvalidArgumentsError(f"{where}: a question of type text has no choices")
    if kind != "text" and not choices:
        raise InvalidArgumentsError(f"{where}: a question of type {kind} needs choices")
    return Question(question, kind, choices, fields.get("required") is not False)


def _choices(fields: dict[str, Any]) -> tuple[str, ...]:
    for name in _CHOICES:
        found = [
            lenient_arguments.text(item, _CHOICE) for item in lenient_arguments.items(fields.get(name), name) or ()
        ]
        if found:
            return tuple([choice for choice in found if choice is not None])
    return ()


def render_answers(questions: Sequence[Question], answers: Answers) -> str:
    """What the model is told."""
    same = "(cancelled)" if answers.cancelled else None
    if answers.error is not None:
        same = f"(error: {answers.error})"
    given = (*answers.answers, *[None] * len(questions))
    return "\n\n".join(
        f"Q: {question.question}\nA: {same or _answer(answer)}"
        for question, answer in zip(questions, given, strict=False)
    )


def _answer(answer: str | Sequence[str] | None) -> str:
    said = answer if isinstance(answer, str) else ", ".join(answer or ())
    return said if said.strip() else "(no answer)"


# -- the tool --------------------------------------------------------------------------------------------------------

_DEFINITION: Final = Tool.of(
    ASK_USER,
    "Ask the user when the task cannot go on without them. Ask all that you need to know in one call. Do not ask what "
    "you can find out yourself.",
    {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": {"type": "string", "description": "The question."},
                        "type": {
                            "type": "string",
                            "enum": list(_KINDS),
                            "description": "text: free text. multiple_choice: one choice. multi_select: any number.",
                        },
                        "choices": {
                            "type": "array",
                            "description": "For multiple_choice and multi_select only.",
                            "items": {
                                "type": "object",
                                "properties": {"value": {"type": "string"}},
                                "required": ["value"],
                            },
                        },
                        "required": {
                            "type": "boolean",
                            "description": "Whether it must be answered; true if left out.",
                        },
                    },
                    "required": ["question", "type"],
                },
            }
        },
        "required": ["questions"],
    },
)


def _check(call: ToolCall) -> tuple[Question, ...]:
    return parse_questions(lenient_arguments.arguments(call))


def answered(request: ApprovalRequest, *answers: str | Sequence[str] | None, cancelled: bool = False) -> Decision:
    """Return the decision that answers ``request``, a pending call of ``ask_user``.

    ``answers`` are in the order of the questions: a text, several choices, or ``None`` for no answer. ``cancelled``
    says that the user answered none of them. Raises ``InvalidArgumentsError`` for a call without questions.
    """
    questions = _check(request.call)
    return answer(render_answers(questions, Answers(answers, cancelled=cancelled)))


def ask_user_tool(
    ask: Callable[[tuple[Question, ...], ToolContext], Awaitable[Answers]] | None = None,
    *,
    timeout: float | None = None,
) -> AgentTool:
    """The tool ``ask_user``. ``ask`` shows the questions and waits; ``timeout`` is in seconds, ``None`` waits for ever.

    Without ``ask``, the run waits for a decision: ``answered(request, "…")``.
    """
    check_arguments("ask_user_tool", ask_user_tool, locals())

    async def run(questions: tuple[Question, ...], context: ToolContext) -> Output:
        if ask is None:
            raise ToolError(f"{ASK_USER} needs a decision and cannot run")
        answers = await ask(questions, context)
        return Output(content=(Text(render_answers(questions, answers)),), is_error=answers.error is not None)

    rule = Rule(judgement="ask", reason="The model asks the user.", choices=("answer",)) if ask is None else None
    return AgentTool(definition=_DEFINITION, run=run, check=_check, timeout=timeout, rule=rule)
