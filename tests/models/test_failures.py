"""From what a provider answered to the one right error."""

import json

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from palaver.models.failures import BODY, classify, cut_by_window, failure, inner_failure, prose

GOLDEN = [
    ("prompt is too long: 210000 tokens", "overflow", None),
    ("context_length_exceeded", "overflow", None),
    ("This model's maximum context length is 8192", "overflow", None),
    ("too many tokens", "overflow", None),
    ("max_tokens: 5 > 4", "output", None),
    ("maximum output reached", "output", None),
    ("rate limit exceeded", "rate", 5),
    ("HTTP 429", "rate", 5),
    ("Too Many Requests", "rate", 5),
    ("Rate limit. Retry-After: 12", "rate", 12),
    ("retry after 3 seconds, rate limit", "rate", 3),
    ("HTTP 500", "overload", None),
    ("overloaded_error", "overload", None),
    ("HTTP 529", "overload", None),
    ("401 Unauthorized", "auth", None),
    ("invalid_api_key", "auth", None),
    ("authentication failed", "auth", None),
    ("HTTP 403", "auth", None),
    ("boom", "unknown", None),
    ("", "unknown", None),
    ("port 5003 refused", "unknown", None),
    ("HTTP 504", "overload", None),
]


@pytest.mark.row("KAI-22")
@pytest.mark.row("D23")
@pytest.mark.parametrize(("text", "kind", "wait"), GOLDEN)
def test_prose_is_read_as_the_golden_says(text, kind, wait):
    assert prose(text) == (kind, wait)


OVERFLOWS = [
    (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    (
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model.",
                "type": "invalid_request_error",
                "param": "input",
                "code": None,
            }
        },
    ),
    (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 207791 tokens > 200000 maximum"},
        },
    ),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            },
        },
    ),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
    (400, {"message": "Input is too long for requested model."}),
    (400, {"message": "The model returned errors: prompt is too long: 903884 tokens > 200000 maximum"}),
    (400, {"message": "too many tokens: size limit exceeded by 100 tokens."}),
    (400, {"error": "the input length exceeds the context length"}),
    (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
    ),
    (500, {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}),
    (
        400,
        {
            "error": {
                "message": "Please reduce the length of the messages or completion.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    (
        413,
        {
            "error": {
                "message": "Request too large for model `llama` on tokens per minute (TPM): Limit 6000",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    (
        429,
        {
            "error": {
                "message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    (
        400,
        {
            "object": "error",
            "message": "40000 tokens, too large for model with 32768 maximum context length",
            "type": "invalid_request_error",
            "code": 3051,
        },
    ),
    (
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 131072 tokens.",
                "code": 400,
                "metadata": {"provider_name": None},
            }
        },
    ),
    (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
    ),
    (
        400,
        {
            "error": {
                "message": "prompt token count of 93854 exceeds the limit of 90000",
                "param": "",
                "code": "",
                "type": "",
            }
        },
    ),
]


def body(value):
    return json.dumps(value).encode()


@pytest.mark.parametrize(("status", "said"), OVERFLOWS)
def test_every_provider_s_overflow_is_recognised(status, said):
    found = failure("w", status, {}, body(said))
    assert type(found) is ContextOverflowError
    assert not found.retryable


@pytest.mark.parametrize(
    ("status", "headers", "said", "seen", "again"),
    [
        (400, {}, {"error": {"message": "no", "type": "invalid_request_error"}}, ProviderError, False),
        (
            400,
            {},
            {"error": {"message": "max_tokens: 21333 > 4096, the maximum", "type": "invalid_request_error"}},
            ProviderError,
            False,
        ),
        (401, {}, {"error": {"message": "rate limit"}}, AuthenticationError, False),
        (
            400,
            {},
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid.",
                    "status": "INVALID_ARGUMENT",
                    "details": [{"reason": "API_KEY_INVALID"}],
                }
            },
            AuthenticationError,
            False,
        ),
        (403, {"x-amzn-errortype": "AccessDeniedException:http://x"}, {"message": "no"}, AuthenticationError, False),
        (402, {}, {"error": {"message": "Insufficient Balance"}}, ProviderError, False),
        (
            400,
            {},
            {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
            ProviderError,
            False,
        ),
        (
            429,
            {},
            {"error": {"message": "quota", "type": "insufficient_quota", "code": "insufficient_quota"}},
            ProviderError,
            False,
        ),
        (
            429,
            {},
            {
                "error": {
                    "message": "Rate limit reached. prompt is too long",
                    "type": "requests",
                    "code": "rate_limit_exceeded",
                }
            },
            RateLimitError,
            True,
        ),
        (
            429,
            {"x-amzn-errortype": "ThrottlingException"},
            {"message": "Too many tokens, please wait before trying again."},
            RateLimitError,
            True,
        ),
        (400, {"x-amzn-errortype": "ThrottlingException"}, {}, RateLimitError, True),
        (429, {}, {"error": {"message": "busy", "status": "UNAVAILABLE"}}, RateLimitError, True),
        (404, {}, {"detail": "Not Found"}, ProviderError, False),
        (408, {}, {}, ProviderError, True),
        (409, {}, {}, ProviderError, True),
        (500, {}, {"error": {"message": "x", "type": "server_error"}}, OverloadedError, True),
        (504, {}, {"error": {"message": "x", "type": "timeout_error"}}, OverloadedError, True),
        (529, {}, {"error": {"message": "x", "type": "overloaded_error"}}, OverloadedError, True),
        (599, {}, {}, OverloadedError, True),
        (429, {"x-should-retry": "false"}, {}, RateLimitError, False),
        (400, {"x-should-retry": "true"}, {}, ProviderError, True),
        (302, {}, {}, ProviderError, False),
    ],
)
@pytest.mark.row("D23")
def test_word_then_status_then_prose(status, headers, said, seen, again):
    found = failure("w", status, headers, body(said))
    assert type(found) is seen
    assert found.retryable is again
    assert found.status == status


def test_it_says_what_the_provider_said():
    said = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}, "request_id": "req_1"}
    found = failure("anthropic_messages", 429, {"retry-after": "3"}, body(said))
    assert (found.code, found.message, found.retry_after) == ("rate_limit_error", "Slow down", 3)
    assert found.request_id == "req_1"
    assert found.body == body(said)
    assert str(found) == "anthropic_messages: the provider answered 429: Slow down"
    assert failure("w", 500, {"x-request-id": "r"}, b"").request_id == "r"


def test_the_delay_of_gemini_is_read():
    said = {"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "34s"}]}}
    assert failure("google_generate", 429, {}, body([said])).retry_after == 34


def test_bodies_are_kept_short():
    found = failure("w", 400, {}, b"x" * 1_000_000)
    assert len(found.body) == BODY
    assert len(str(found)) < 150


@pytest.mark.parametrize(
    ("content_type", "data", "message"),
    [
        ("text/html", b"<html>x</html>", "an HTML page"),
        ("", b" <!doctype html>", "an HTML page"),
        ("text/plain", b"upstream\n  gone", "upstream gone"),
        ("text/plain", b"", "no body"),
        ("application/json", b'"just a text"', "just a text"),
        ("application/json", b"\xff", "\ufffd"),
    ],
)
def test_a_body_that_is_no_object_has_a_short_text(content_type, data, message):
    assert failure("w", 502, {"content-type": content_type}, data).message == message


@pytest.mark.parametrize(
    ("code", "message", "seen"),
    [
        ("overloaded_error", "Overloaded", OverloadedError),
        ("context_length_exceeded", "x", ContextOverflowError),
        (None, "prompt is too long", ContextOverflowError),
        ("500", "x", OverloadedError),
        ("429", "x", RateLimitError),
        ("invalid_request_error", "x", ProviderError),
        (None, "HTTP 529", OverloadedError),
    ],
)
def test_an_error_inside_a_200_is_judged_alike(code, message, seen):
    assert type(inner_failure(ProviderError("w", message, code=code))) is seen


@given(st.none() | st.integers(100, 599), st.lists(st.text(max_size=20), max_size=4), st.text(max_size=200))
def test_everything_has_a_kind(status, words, text):
    assert classify(status, words, text) in {
        "overflow",
        "output",
        "rate",
        "overload",
        "auth",
        "quota",
        "again",
        "unknown",
    }


def test_words_in_another_encoding_are_read_as_well_as_can_be():
    found = failure("w", 429, {}, b'{"error": {"message": "trop \xe9lev\xe9", "code": "rate_limit_exceeded"}}')
    assert type(found) is RateLimitError
    assert found.message == "trop \ufffdlev\ufffd"


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_body_breaks_it(status, data):
    assert isinstance(failure("w", status, {}, data), ProviderError)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["error", "message", "type", "code", "retryDelay", "details"]), inner)
    ),
)


@given(st.integers(100, 599), _JSON)
def test_no_json_breaks_it(status, value):
    assert isinstance(failure("w", status, {}, body(value)), ProviderError)


@pytest.mark.parametrize(
    ("answer", "cut"),
    [
        (p.assistant("Half", finish_reason="length", finish_reason_raw="model_context_window_exceeded"), True),
        (p.assistant("", finish_reason="length", finish_reason_raw="MODEL_CONTEXT_WINDOW_EXCEEDED"), True),
        (p.assistant(finish_reason="length", usage=p.Usage(input=9, output=0)), True),
        (p.assistant(finish_reason="length", usage=p.Usage(input=9, output=1)), True),
        (p.assistant(finish_reason="length", usage=p.Usage(input=9, output=900)), False),
        (p.assistant(finish_reason="length"), False),
        (p.assistant("Half", finish_reason="length", finish_reason_raw="max_tokens"), False),
        (p.assistant("All", finish_reason="stop", finish_reason_raw="model_context_window_exceeded"), False),
    ],
)
def test_an_answer_cut_off_by_the_window_is_recognised(answer, cut):
    assert cut_by_window(answer) is cut
