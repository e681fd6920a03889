"""The sandbox over HTTP: documents, chat completions, ledger and planned faults."""

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.types import Lifespan

from invoices import documents
from invoices.sandbox.answering import ChatRequest, completion, digest, document_in, names, reply
from invoices.sandbox.faults import Answer, FaultPlan, Hang, Refuse, fault
from invoices.sandbox.ledger import Call, Caller, Ledger

log = logging.getLogger("invoices.sandbox")

NOTICE = """This is a SANDBOX, not a model provider. It belongs to the example "invoices".
It answers the OpenAI chat-completions protocol by parsing the document in the prompt.
Nobody is charged: its ledger only writes down what the real model of that name would cost.

GET    /documents             the sample documents (read from the installed package nfelib)
GET    /documents/NAME.xml    one of them
POST   /v1/chat/completions   the answer for the document in the last message
GET    /ledger                every call: caller, tokens, price, whether its key had paid before
POST   /faults                {"document": NAME, "faults": ["429:2", "500", "hang:30", ...]}
GET    /faults                what is still planned      DELETE /faults   forget it
GET    /held                  the calls that wait to be released   POST /release   answer them
GET    /healthz               alive
"""

MARK = {"x-sandbox": "true"}


class Planned(BaseModel):
    """Faults of the next calls for one document, in order."""

    document: str
    faults: list[str]


class Sandbox:
    """The state of one sandbox; it lives in its process's memory."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.plan = FaultPlan()
        self.held: list[str] = []
        self._released = asyncio.Event()
        self._names = names()

    async def complete(
        self, chat: ChatRequest, caller: Caller, request: Request
    ) -> dict[str, Any] | JSONResponse:
        """Answer one call as planned for its document."""
        document = self._names.get(digest(document_in(chat)))
        behaviour = self.plan.take(document)
        log.info("sandbox call: document %s, job %s, %s", document, caller.job_id, behaviour)
        match fault(behaviour):
            case Answer(form, after, held):
                # A provider generates, and charges for, what its client no longer waits for.
                await asyncio.sleep(after)
                if held:
                    await self._hold(document)
                said = reply(chat, form)
                tokens = {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}
                call = self._enter(chat, caller, document, behaviour, **tokens)
                return completion(chat.model, call.number, said)
            case Refuse(status, retry_after):
                self._enter(chat, caller, document, behaviour)
                return _refusal(status, retry_after)
            case Hang(seconds):
                self._enter(chat, caller, document, behaviour)
                await _gone(request, seconds)
                return _refusal(504, None)

    def release(self) -> list[str]:
        """Let every held call be answered; return for which documents."""
        self._released.set()
        self._released = asyncio.Event()
        held, self.held = self.held, []
        return held

    async def _hold(self, document: str | None) -> None:
        self.held.append(document or "unknown")
        await self._released.wait()

    def _enter(
        self, chat: ChatRequest, caller: Caller, document: str | None, behaviour: str, **tokens: int
    ) -> Call:
        return self.ledger.enter(
            caller, document=document, model=chat.model, behaviour=behaviour, **tokens
        )


def create_app(sandbox: Sandbox, *, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """Build the HTTP application around one sandbox."""
    app = FastAPI(
        title="Sandbox provider of the example invoices",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.include_router(_samples())
    app.include_router(_provider(sandbox))
    app.include_router(_books(sandbox))
    app.include_router(_gate(sandbox))
    return app


def _samples() -> APIRouter:
    router = APIRouter()

    @router.get("/", response_class=PlainTextResponse)
    async def index() -> PlainTextResponse:
        return PlainTextResponse(NOTICE, headers=MARK)

    @router.get("/healthz")
    async def healthz() -> dict[str, object]:
        return {"status": "ok", "sandbox": True}

    @router.get("/documents")
    async def listing(request: Request) -> dict[str, object]:
        address = f"{request.base_url}documents/"
        return {"items": [{"name": d.name, "url": f"{address}{d.name}.xml"} for d in documents.ALL]}

    @router.get("/documents/{name}.xml")
    async def document(name: str) -> Response:
        found = documents.named(name)
        if found is None:
            known = ", ".join(sample.name for sample in documents.ALL)
            raise HTTPException(404, f"no document {name!r}; expected one of {known}")
        return Response(found.read(), media_type="application/xml", headers=MARK)

    return router


def _provider(sandbox: Sandbox) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/chat/completions", response_model=None)
    async def chat_completions(
        chat: ChatRequest,
        caller: Annotated[Caller, Depends(_caller)],
        request: Request,
        response: Response,
    ) -> dict[str, Any] | JSONResponse:
        response.headers.update(MARK)
        if chat.stream:
            return _refusal(400, None)
        return await sandbox.complete(chat, caller, request)

    return router


def _caller(
    idempotency_key: Annotated[str | None, Header()] = None,
    x_job_id: Annotated[str | None, Header()] = None,
    x_step: Annotated[str | None, Header()] = None,
) -> Caller:
    return Caller(idempotency_key, x_job_id, x_step)


def _books(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    @router.get("/ledger")
    async def ledger() -> dict[str, object]:
        calls = [call.model_dump(mode="json") for call in sandbox.ledger.calls()]
        return {"sandbox": True, "chargedUsd": str(sandbox.ledger.total()), "calls": calls}

    @router.post("/faults", status_code=201)
    async def plan(planned: Planned) -> dict[str, list[str]]:
        if documents.named(planned.document) is None:
            raise HTTPException(404, f"no document {planned.document!r}; GET /documents lists them")
        try:
            sandbox.plan.add(planned.document, planned.faults)
        except ValueError as wrong:
            raise HTTPException(422, str(wrong)) from wrong
        return sandbox.plan.left()

    @router.get("/faults")
    async def left() -> dict[str, list[str]]:
        return sandbox.plan.left()

    @router.delete("/faults", status_code=204)
    async def forget() -> None:
        sandbox.plan.clear()

    return router


def _gate(sandbox: Sandbox) -> APIRouter:
    router = APIRouter()

    @router.get("/held")
    async def held() -> dict[str, list[str]]:
        return {"documents": sandbox.held}

    @router.post("/release")
    async def release() -> dict[str, list[str]]:
        return {"documents": sandbox.release()}

    return router


def _refusal(status: int, retry_after: str | None) -> JSONResponse:
    headers = MARK | ({"Retry-After": retry_after} if retry_after else {})
    error = {"message": f"sandbox: a planned {status}", "type": "sandbox", "code": None}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def _gone(request: Request, seconds: float) -> None:
    """Return when the client has gone, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            while (await request.receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return
