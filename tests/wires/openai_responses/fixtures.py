"""Bodies of the Responses wire, written by hand: one of each kind in docs/spec/wires.md#3."""

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUg=="

OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA+/=", "content": []},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [
            {
                "type": "output_text",
                "text": "See the site.",
                "logprobs": [],
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "https://a.example",
                        "title": "A",
                        "start_index": 4,
                        "end_index": 12,
                    },
                    {"type": "file_citation", "file_id": "file_1", "filename": "a.pdf", "index": 3},
                ],
            },
            {"type": "output_text", "text": "", "annotations": []},
            {"type": "refusal", "refusal": "No."},
            {"type": "hologram", "depth": 3.50},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "namespace": "eyes",
        "arguments": '{"b": 1,  "a": 2.0}',
        "status": "completed",
    },
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "sql", "input": "SELECT 1;\n"},
]

HOSTED: list[dict[str, Any]] = [
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x", "sources": []},
    },
    {"type": "web_search_call", "id": "ws_2", "status": "failed"},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"], "results": None},
    {
        "type": "file_search_call",
        "id": "fs_2",
        "status": "completed",
        "queries": ["q"],
        "results": [{"file_id": "file_1", "score": 0.50}],
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1+1",
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_2",
        "status": "completed",
        "code": None,
        "container_id": "cntr_1",
        "outputs": None,
    },
    {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "generating",
        "result": PNG,
        "output_format": "png",
        "revised_prompt": "a cat",
    },
    {"type": "image_generation_call", "id": "ig_2", "status": "failed", "result": None},
    {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "wiki",
        "tools": [{"name": "ask", "input_schema": {"type": "object"}}],
    },
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "wiki",
        "name": "ask",
        "arguments": '{"q": "?"}',
        "output": "yes",
        "error": None,
        "approval_request_id": None,
    },
    {
        "type": "mcp_call",
        "id": "mcp_2",
        "server_label": "wiki",
        "name": "ask",
        "arguments": "{not json",
        "output": None,
        "error": {"type": "http_error", "code": 500},
    },
    {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": None,
        "execution": "server",
        "status": "completed",
        "arguments": {"queries": ["x"]},
    },
    {
        "type": "tool_search_output",
        "id": "tso_1",
        "call_id": None,
        "execution": "server",
        "status": "completed",
        "tools": [{"type": "function", "name": "look", "parameters": {}, "strict": True}],
    },
    {"type": "program", "id": "prg_1", "call_id": "p1", "code": "run()", "fingerprint": "f"},
    {"type": "program_output", "id": "po_1", "call_id": "p1", "result": "done", "status": "completed"},
    {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "s1",
        "status": "completed",
        "action": {"commands": ["ls"]},
        "environment": {"type": "container_reference", "container_id": "cntr_1"},
    },
    {
        "type": "shell_call_output",
        "id": "sho_1",
        "call_id": "s1",
        "status": "completed",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
    {"type": "telepathy_call", "id": "tp_1", "thought": {"deep": 1e-7}},
]

PAIRS: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "call_3", "name": "look", "arguments": ""},
    {"type": "function_call_output", "call_id": "call_3", "output": "plain", "id": "fco_1", "status": "completed"},
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "cu1",
        "status": "completed",
        "pending_safety_checks": [],
        "action": {"type": "screenshot"},
    },
    {
        "type": "computer_call_output",
        "call_id": "cu1",
        "acknowledged_safety_checks": [],
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}", "file_id": None},
    },
    {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "ls1",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    {"type": "local_shell_call_output", "id": "ls1", "output": '{"stdout": ""}', "status": None},
    {"type": "shell_call", "call_id": "sh2", "action": {"commands": ["ls"]}, "status": "completed"},
    {
        "type": "shell_call_output",
        "call_id": "sh2",
        "max_output_length": 10,
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "timeout"}}],
    },
    {
        "type": "apply_patch_call",
        "call_id": "ap1",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "x"},
    },
    {"type": "apply_patch_call_output", "call_id": "ap1", "status": "failed", "output": "no such file"},
    {
        "type": "apply_patch_call",
        "call_id": "ap2",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "y"},
    },
    {"type": "apply_patch_call_output", "call_id": "ap2", "status": "completed"},
    {
        "type": "tool_search_call",
        "call_id": "ts2",
        "execution": "client",
        "status": "completed",
        "arguments": {"queries": ["x"]},
    },
    {
        "type": "tool_search_output",
        "call_id": "ts2",
        "execution": "client",
        "status": "completed",
        "tools": [{"type": "function", "name": "late", "parameters": {"type": "object"}, "strict": True}],
    },
    {"type": "custom_tool_call", "call_id": "call_4", "name": "sql", "input": ""},
    {"type": "custom_tool_call_output", "call_id": "call_4", "output": [{"type": "input_text", "text": "1"}]},
]

INPUT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief. JSON."},
    {"role": "developer", "content": [{"type": "input_text", "text": "Really."}]},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
    {"role": "user", "content": "Hello"},
    {
        "type": "message",
        "id": "msg_u",
        "role": "user",
        "status": "completed",
        "content": [
            {"type": "input_text", "text": "Look:", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"},
            {"type": "input_image", "image_url": "https://a.example/a.png"},
            {"type": "input_image", "file_id": "file_1", "image_url": None, "detail": "auto"},
            {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
            {"type": "input_file", "file_data": "data:text/plain;base64,YQ=="},
            {"type": "input_file", "file_url": "https://a.example/a.pdf"},
            {"type": "input_file", "file_id": "file_2"},
            {"type": "input_smell", "of": "coffee"},
        ],
    },
    *OUTPUT,
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "high"},
        ],
    },
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "1"},
    *HOSTED,
    {"role": "assistant", "content": "One."},
    {"role": "assistant", "content": "Two."},
    {"role": "assistant", "content": "Three."},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Four.", "annotations": []}]},
    {"type": "message", "role": "assistant", "content": "Five."},
    {"type": "message", "role": "assistant", "content": [], "id": "msg_e", "status": "incomplete"},
    {"role": "assistant", "content": ""},
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki", "name": "ask", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    *PAIRS,
    {"id": "msg_old"},
    {"type": "item_reference", "id": "rs_old"},
    {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"a": {"minimum": 1.0}}},
        "strict": True,
        "defer_loading": True,
    },
    {"type": "function", "name": "bare"},
    {"type": "function", "name": "nulls", "description": None, "parameters": None, "strict": None},
    {"type": "custom", "name": "sql", "description": "SQL", "format": {"type": "text"}},
    {"type": "web_search", "search_context_size": "low"},
    {"type": "namespace", "name": "eyes", "description": "", "tools": [{"type": "function", "name": "look"}]},
]

REQUEST: dict[str, Any] = {
    "model": "gpt-x",
    "instructions": "You are kind.",
    "input": INPUT,
    "tools": TOOLS,
    "tool_choice": "auto",
    "max_output_tokens": 100,
    "parallel_tool_calls": False,
    "stream": False,
    "store": None,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {
        "format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True},
        "verbosity": "low",
    },
    "metadata": {"k": "v"},
    "x_unheard_of": {"deep": [1.0, None]},
}

USAGE: dict[str, Any] = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 150,
}

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1700000000,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": "You are kind.",
    "max_output_tokens": None,
    "model": "gpt-x-2026",
    "output": [*OUTPUT, *HOSTED],
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": None},
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [{**TOOLS[0], "output_schema": None}],
    "usage": USAGE,
    "metadata": {},
}


def answer(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a response with these items."""
    return {**RESPONSE, "output": list(items), **fields}


def asked(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a request with these items."""
    return {"model": "gpt-x", "input": list(items), **fields}
