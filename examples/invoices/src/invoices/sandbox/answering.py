"""Answer a chat completion by parsing the document in the prompt: no model is involved."""

import json
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, Field

from invoices import documents
from invoices.models import Invoice
from invoices.parsing import NotAnInvoice, parse


class Message(BaseModel):
    """One message of the prompt."""

    role: str
    content: str


class ChatRequest(BaseModel):
    """The part of a chat-completions request that the sandbox reads."""

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What is said, and how many tokens it took to read and to say it."""

    content: str | None
    refusal: str | None
    input_tokens: int
    output_tokens: int


def document_in(request: ChatRequest) -> str:
    """Return the text of the document: the last message from its first angle bracket on."""
    content = request.messages[-1].content
    return content[content.find("<") :] if "<" in content else content


def names() -> dict[str, str]:
    """Return the name of each sample by the digest of its text."""
    return {digest(sample.read().decode("utf-8-sig")): sample.name for sample in documents.ALL}


def digest(text: str) -> str:
    """Return what tells one document's text from another's."""
    return sha256(text.strip().encode()).hexdigest()


def reply(request: ChatRequest, form: str) -> Reply:
    """Say what the document holds, in the form asked for; refuse what is no invoice."""
    content, refusal = _say(document_in(request), form)
    return Reply(
        content=content,
        refusal=refusal,
        input_tokens=sum(tokens(message.content) for message in request.messages),
        output_tokens=tokens(content or refusal or ""),
    )


def tokens(text: str) -> int:
    """Count tokens roughly (four bytes are one): the same text always costs the same."""
    return -(-len(text.encode()) // 4)


def completion(model: str, number: int, reply: Reply) -> dict[str, Any]:
    """Return the response body; `system_fingerprint` says that it comes from a sandbox."""
    message = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
    return {
        "id": f"sandbox-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "system_fingerprint": "sandbox",
        "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}],
        "usage": {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def _say(text: str, form: str) -> tuple[str | None, str | None]:
    if form == "bad_output":
        return json.dumps({"total": "a lot", "comment": "this is outside the schema"}), None
    try:
        invoice = parse(text)
    except NotAnInvoice as refused:
        return None, f"I cannot extract an invoice: {refused}"
    return (_misread(invoice) if form == "bad_total" else invoice).model_dump_json(), None


def _misread(invoice: Invoice) -> Invoice:
    totals = invoice.totals.model_copy(update={"total": invoice.totals.total + Decimal("1.00")})
    return invoice.model_copy(update={"totals": totals})
