"""Conversations that Hypothesis draws, and each API's body of them in one of its many spellings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Body = dict[str, Any]
Items = list[list[Any]]
"""The items of a body by exchange."""

DATA = "iVBORw0KGgo="
PIXEL = f"data:image/png;base64,{DATA}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "The weather in a city", "parameters": SCHEMA}
CACHED = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}

WORDS = st.text(st.sampled_from("abc é\n{}\"'0"), min_size=1, max_size=6).filter(lambda text: text.strip())


@dataclass(frozen=True)
class Call:
    """A call, its arguments and its result."""

    id: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True)
class Step:
    """What the assistant thinks and says, and the calls that it makes."""

    thought: str | None
    said: str | None
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Exchange:
    """A question, the steps and the answer; without an answer the next question interrupts it."""

    words: str
    image: bool
    steps: tuple[Step, ...]
    answer: str | None


@st.composite
def talks(draw: st.DrawFn, *, images: bool = True) -> tuple[Exchange, ...]:
    """Conversations of one to three exchanges and a last question."""
    number = iter(range(100))

    def call() -> Call:
        return Call(f"id-{next(number)}", {"city": draw(WORDS)}, draw(WORDS))

    def step() -> Step:
        calls = tuple(call() for _ in range(draw(st.integers(1, 3))))
        return Step(draw(st.none() | WORDS), draw(st.none() | WORDS), calls)

    exchanges = []
    for _ in range(draw(st.integers(1, 3))):
        steps = tuple(step() for _ in range(draw(st.integers(0, 2))))
        answer = draw(st.none() | WORDS) if steps else draw(WORDS)
        exchanges.append(Exchange(draw(WORDS), images and draw(st.booleans()), steps, answer))
    return (*exchanges, Exchange(draw(WORDS), False, (), None))


class Pen:
    """Draws one spelling of many."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one(self, *choices: Any) -> Any:
        """Returns one of these."""
        return self._draw(st.sampled_from(choices))

    def some(self, **members: Any) -> Body:
        """Returns these members, or only a few of them."""
        return {name: value for name, value in members.items() if self._draw(st.booleans())}

    def text(self, kind: str, text: str, **more: Any) -> Any:
        """Returns a text as a string or as a list of one block."""
        return self.one(text, [{"type": kind, "text": text, **self.some(**more)}])

    def tools(self, tool: Body) -> Body:
        """Returns a body's tools: absent, null, empty, or one."""
        return self.one({}, {"tools": None}, {"tools": []}, {"tools": [tool]})


# One function for each API: the members of a body, and its items by exchange


def chat(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of OpenAI's chat API."""
    items: Items = []
    for exchange in talk:
        content = pen.text("text", exchange.words)
        if exchange.image:
            image = {"type": "image_url", "image_url": pen.one(PIXEL, {"url": PIXEL, "detail": "low"})}
            content = [{"type": "text", "text": exchange.words}, image]
        mine: list[Any] = [{"role": "user", "content": content, **pen.some(name=None)}]
        for step in exchange.steps:
            said = {"content": step.said} if step.said else pen.one({}, {"content": None}, {"content": ""})
            calls = [
                {
                    "id": call.id,
                    "function": {"name": "weather", "arguments": json.dumps(call.arguments)},
                    **pen.some(type="function", index=0),
                }
                for call in step.calls
            ]
            more = pen.some(refusal=None, reasoning_content="Hm.", annotations=[])
            mine.append({"role": "assistant", **said, "tool_calls": calls, **more})
            mine += [
                {"role": "tool", "tool_call_id": call.id, "content": pen.text("text", call.result)}
                for call in step.calls
            ]
        if exchange.answer is not None:
            more = pen.some(refusal=None, tool_calls=None, function_call=None)
            mine.append({"role": "assistant", "content": pen.text("text", exchange.answer), **more})
        items.append(mine)
    system = pen.one([], [{"role": pen.one("system", "developer"), "content": pen.text("text", "Be brief.")}])
    tool = {"function": FUNCTION, **pen.some(type="function", **CACHED)}
    more = pen.some(model="gpt-5", temperature=0, stop=None, n=None, response_format=None, seed=1)
    return {**more, **pen.tools(tool), "messages": system}, items


def responses(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of OpenAI's Responses API."""
    items: Items = []
    for exchange in talk:
        content = pen.text("input_text", exchange.words)
        if exchange.image:
            image = {"type": "input_image", "image_url": PIXEL, **pen.some(detail="low", file_id=None)}
            content = [{"type": "input_text", "text": exchange.words}, image]
        mine: list[Any] = [{"role": "user", "content": content, **pen.some(type="message", id=None)}]
        for step in exchange.steps:
            if step.thought:
                mine.append(
                    {"type": "reasoning", "id": "rs", "summary": [], **pen.some(encrypted_content="g")}
                )
            if step.said:
                mine.append(said_item(pen, step.said))
            mine += [
                {
                    "type": "function_call",
                    "call_id": call.id,
                    "name": "weather",
                    "arguments": json.dumps(call.arguments),
                    **pen.some(id="fc", status="completed"),
                }
                for call in step.calls
            ]
            mine += [
                {
                    "type": "function_call_output",
                    "call_id": call.id,
                    "output": pen.text("input_text", call.result),
                    **pen.some(id=None, status="completed"),
                }
                for call in step.calls
            ]
        if exchange.answer is not None:
            mine.append(said_item(pen, exchange.answer))
        items.append(mine)
    tool = {"type": "function", **FUNCTION, **pen.some(strict=True)}
    more = pen.some(model="gpt-5", instructions=pen.one("Be brief.", "", None), store=False, top_p=None)
    return {**more, **pen.tools(tool), "input": []}, items


def said_item(pen: Pen, text: str) -> Body:
    """A message item of the assistant."""
    content = pen.text("output_text", text, annotations=[], logprobs=None)
    more = pen.some(type="message", id="msg", status="completed", phase=None)
    return {"role": "assistant", "content": content, **more}


def anthropic(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Anthropic's Messages API."""
    items: Items = []
    last: list[Any] = []
    for exchange in talk:
        text = {"type": "text", "text": exchange.words, **pen.some(**CACHED, citations=None)}
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
        content = [text, image] if exchange.image else [text]
        mine: list[Any] = []
        if last and pen.one(True, False):
            last[-1]["content"] += content
        else:
            plain = not exchange.image and pen.one(True, False)
            mine.append({"role": "user", "content": exchange.words if plain else content})
        last = []
        for step in exchange.steps:
            blocks: list[Any] = []
            if step.thought:
                blocks.append({"type": "thinking", "thinking": step.thought, "signature": "c2ln"})
            if step.said:
                blocks.append({"type": "text", "text": step.said})
            for call in step.calls:
                used = {"type": "tool_use", "id": call.id, "name": "weather", "input": dict(call.arguments)}
                blocks.append({**used, **pen.some(**CACHED, caller=None)})
            mine.append({"role": "assistant", "content": blocks})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": pen.text("text", call.result),
                    **pen.some(is_error=False, **CACHED),
                }
                for call in step.calls
            ]
            grouped = [results] if pen.one(True, False) else [[result] for result in results]
            last = [{"role": "user", "content": group} for group in grouped]
            mine += last
        if exchange.answer is not None:
            mine.append({"role": "assistant", "content": pen.text("text", exchange.answer)})
            last = []
        items.append(mine)
    system = pen.one("Be brief.", "", [], [{"type": "text", "text": "Be brief.", **CACHED}], None)
    tool = {"name": "weather", "input_schema": SCHEMA, **pen.some(type="custom", strict=True, **CACHED)}
    more = pen.some(model="claude", system=system, max_tokens=9, metadata={"user_id": "u"}, top_k=None)
    return {**more, **pen.tools(tool), "messages": []}, items


def gemini(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Google's generateContent."""
    items: Items = []
    last: list[Any] = []
    with_ids = pen.one(True, False)
    for exchange in talk:
        parts: list[Any] = [{"text": exchange.words}]
        if exchange.image:
            parts.append({"inlineData": {"mimeType": "image/png", "data": DATA}})
        mine: list[Any] = []
        if last and pen.one(True, False):
            last[-1]["parts"] += parts
        else:
            mine.append({**pen.some(role="user"), "parts": parts})
        last = []
        for step in exchange.steps:
            said: list[Any] = [{"text": step.thought, "thought": True}] if step.thought else []
            said += [{"text": step.said, **pen.some(thoughtSignature="c2ln")}] if step.said else []
            for call in step.calls:
                named = {"name": "weather", **({"id": call.id} if with_ids else {})}
                made = {"functionCall": {**named, "args": dict(call.arguments)}}
                said.append({**made, **pen.some(thoughtSignature="c2ln")})
            mine.append({"role": "model", "parts": said})
            results = []
            for call in step.calls:
                named = {"name": "weather", **({"id": call.id} if with_ids else {})}
                response = pen.one({"output": call.result}, {"result": call.result, "code": 1.0})
                results.append({"functionResponse": {**named, "response": response}})
            grouped = [results] if pen.one(True, False) else [[result] for result in results]
            role = pen.one("user", "function")
            last = [{"role": role, "parts": group} for group in grouped]
            mine += last
        if exchange.answer is not None:
            mine.append({"role": "model", "parts": [{"text": exchange.answer}, *code(pen)]})
            last = []
        items.append(mine)
    more = pen.some(
        model=pen.one("models/gemini-3", "gemini-3"),
        systemInstruction=pen.one("Be brief.", {"parts": [{"text": "Be brief."}], **pen.some(role="user")}),
        safetySettings=[{"category": "c", "threshold": "t"}],
        cachedContent="cachedContents/1",
        generationConfig={"temperature": 0, **pen.some(responseMimeType="application/json", topK=None)},
        toolConfig={"functionCallingConfig": {"mode": "VALIDATED"}},
    )
    schema = pen.one("parameters", "parametersJsonSchema")
    declared = {"functionDeclarations": [{"name": "weather", schema: SCHEMA}]}
    tool = pen.one(declared, {**declared, "googleSearch": {}})
    return {**more, **pen.tools(tool), "contents": []}, items


def code(pen: Pen) -> list[Body]:
    """Parts of Google's own code tool, or none."""
    run = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
    done = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
    found: list[Body] = pen.one([], [], [run, done, {"thoughtSignature": "c2ln", "toolCall": {"id": "t"}}])
    return found


def snake(value: Any) -> Any:
    """The same body with its names in snake_case."""
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()}
    return [snake(each) for each in value] if isinstance(value, list) else value


def bedrock(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Bedrock's Converse API; its turns alternate."""
    items: Items = []
    last: Body | None = None
    for exchange in talk:
        words = pen.one({"text": exchange.words}, {"guardContent": {"text": {"text": exchange.words}}})
        content = [words, *pen.one([], [POINT])]
        if exchange.image:
            content.append({"image": {"format": "png", "source": {"bytes": pen.one(DATA, b"\x89PNG")}}})
        mine: list[Any] = []
        if last is not None:
            last["content"] += content
        else:
            mine.append({"role": "user", "content": content})
        last = None
        for step in exchange.steps:
            blocks: list[Any] = []
            if step.thought:
                thought = {"reasoningText": {"text": step.thought, "signature": "c2ln"}}
                blocks.append({"reasoningContent": pen.one(thought, {"redactedContent": "b3Bh"})})
            if step.said:
                blocks.append({"text": step.said})
            for call in step.calls:
                used = {"toolUseId": call.id, "name": "weather", "input": dict(call.arguments)}
                blocks += [{"toolUse": used}, *pen.one([], [POINT])]
            mine.append({"role": "assistant", "content": blocks})
            results: list[Any] = []
            for call in step.calls:
                content = [pen.one({"text": call.result}, {"json": {"is": call.result}})]
                status = pen.some(status=pen.one("error", "success"))
                results += [
                    {"toolResult": {"toolUseId": call.id, "content": content, **status}},
                    *pen.one([], [POINT]),
                ]
            last = {"role": "user", "content": results}
            mine.append(last)
        if exchange.answer is not None:
            mine.append({"role": "assistant", "content": [{"text": exchange.answer}]})
            last = None
        items.append(mine)
    spec = {"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}, **pen.some(strict=True)}}
    config = {"tools": [spec, *pen.one([], [POINT])], **pen.some(toolChoice={"any": {}})}
    more = pen.some(
        system=[{"text": "Be brief."}, *pen.one([], [POINT])],
        toolConfig=config,
        inferenceConfig={"maxTokens": 9, "temperature": None},
        additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 1024}},
        guardrailConfig={"guardrailIdentifier": "g"},
    )
    named = pen.one({}, {"modelId": "us.amazon.nova-lite-v1:0"}, {"model": "us.amazon.nova-lite-v1:0"})
    return {**named, **more, "messages": []}, items


def cohere_v2(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Cohere's second version."""
    body, items = chat(pen, talk)
    body["messages"] = [{**message, "role": "system"} for message in body["messages"]]
    for mine in items:
        for message in mine:
            if message["role"] == "tool" and pen.one(True, False):
                document = {"data": {"is": message["content"]}, **pen.some(id="d")}
                message["content"] = [{"type": "document", "document": document}]
            elif message.get("tool_calls"):
                message.update(pen.some(tool_plan="Ask."))
            elif message["role"] == "assistant":
                message.update(pen.some(citations=[{"start": 0, "end": 1, "text": "a"}]))
    documents = [pen.one("Mild.", {"id": "1", "data": {"title": "Notes", "text": "Mild."}})]
    more = pen.some(documents=documents, tool_choice="REQUIRED", safety_mode="OFF", p=None)
    return {**body, **more, "messages": body["messages"]}, items


def cohere_v1(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Cohere's first version; the last question is its message."""
    items: Items = []
    for exchange in talk[:-1]:
        mine: list[Any] = [{"role": pen.one("USER", "User"), "message": exchange.words}]
        for step in exchange.steps:
            calls = [{"name": "weather", "parameters": dict(call.arguments)} for call in step.calls]
            mine.append({"role": "CHATBOT", "message": step.said or "", "tool_calls": calls})
            results = []
            for call in step.calls:
                made = {"name": "weather", **pen.some(parameters=dict(call.arguments))}
                outputs = pen.one([{"output": call.result}], [{"is": call.result, "code": 1}])
                results.append({"call": made, "outputs": outputs})
            mine.append({"role": "TOOL", "tool_results": results})
        if exchange.answer is not None:
            mine.append({"role": "CHATBOT", "message": exchange.answer, **pen.some(tool_calls=None)})
        items.append(mine)
    definition = {"type": "str", **pen.some(required=True, description="Where")}
    tool = {"name": "weather", "description": "d", "parameter_definitions": {"city": definition}}
    more = pen.some(
        model="command-r",
        preamble=pen.one("Be brief.", ""),
        documents=[{"title": "Notes", "snippet": "Mild."}],
        temperature=None,
        force_single_step=False,
    )
    return {**more, **pen.tools(tool), "message": talk[-1].words, "chat_history": []}, items


def ollama(pen: Pen, talk: tuple[Exchange, ...]) -> tuple[Body, Items]:
    """A body of Ollama's chat API."""
    items: Items = []
    with_ids = pen.one(True, False)
    for exchange in talk:
        images = {"images": [DATA]} if exchange.image else pen.some(images=[])
        mine: list[Any] = [{"role": "user", "content": exchange.words, **images}]
        for step in exchange.steps:
            calls = [
                {
                    **({"id": call.id} if with_ids else {}),
                    "function": {"name": "weather", "arguments": dict(call.arguments)},
                }
                for call in step.calls
            ]
            said = {"content": step.said} if step.said else pen.some(content="")
            thought = {"thinking": step.thought} if step.thought else {}
            mine.append({"role": "assistant", **said, **thought, "tool_calls": calls})
            name = pen.one("tool_name", "name")
            mine += [
                {
                    "role": "tool",
                    name: "weather",
                    "content": call.result,
                    **({"tool_call_id": call.id} if with_ids else {}),
                }
                for call in step.calls
            ]
        if exchange.answer is not None:
            mine.append({"role": "assistant", "content": exchange.answer})
        items.append(mine)
    system = pen.one([], [{"role": "system", "content": "Be brief."}])
    more = pen.some(
        model="llama", stream=False, options={"temperature": 0}, format=pen.one("", "json", SCHEMA)
    )
    return {**more, **pen.tools({"type": "function", "function": FUNCTION}), "messages": system}, items


ITEMS = ("messages", "contents", "input", "chat_history")
"""Names of the list of items in a body."""

Writer = Callable[[Pen, tuple[Exchange, ...]], tuple[Body, Items]]
WRITERS: Mapping[str, Writer] = {
    "openai.chat": chat,
    "openai.responses": responses,
    "openai.responses.input_tokens": responses,
    "anthropic.messages": anthropic,
    "anthropic.count_tokens": anthropic,
    "gemini": gemini,
    "gemini.count_tokens": gemini,
    "bedrock.converse": bedrock,
    "ollama.chat": ollama,
    "cohere.chat.v1": cohere_v1,
    "cohere.chat.v2": cohere_v2,
}
INVOKED: Mapping[str, tuple[Writer, Body]] = {
    "anthropic": (anthropic, {"anthropic_version": "bedrock-2023-05-31"}),
    "nova": (bedrock, {"schemaVersion": "messages-v1"}),
    "mistral": (chat, {}),
    "cohere": (cohere_v1, {}),
}
"""Maker of a model behind bedrock.invoke → the function of its format, and the members that show it."""


def items_of(body: Body) -> str:
    """The name of a body's list of items."""
    return next(name for name in ITEMS if name in body)


@st.composite
def bodies(draw: st.DrawFn, api: str, talk: tuple[Exchange, ...]) -> tuple[Body, list[int]]:
    """Bodies of an API, and the number of items of each exchange."""
    pen = Pen(draw)
    if api == "bedrock.invoke":
        writer, members = INVOKED[pen.one(*INVOKED)]
    else:
        writer, members = WRITERS[api], {}
    body, items = writer(pen, talk)
    name = items_of(body)
    body = {**members, **body, name: [*body[name], *(item for mine in items for item in mine)]}
    if writer is gemini and pen.one(True, False):
        body = snake(body)
    if api == "gemini.count_tokens":
        body = pen.one(body, {"generateContentRequest": body})
    return body, [len(mine) for mine in items]
