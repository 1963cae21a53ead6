"""What each piece of a request costs for one model.

A request costs `request(...)` once, plus `message(...)` for each message: costs add up, so that a
running conversation pays only for what is new in it.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.messages import arguments_text
from ullage.tokens.calls import wrapped
from ullage.tokens.definitions import count_properties, schema_text, tools_texts
from ullage.tokens.families import family_of
from ullage.tokens.images import part_cost
from ullage.tokens.measures import Measures, measures_of
from ullage.tokens.memo import remembered
from ullage.tokens.registry import on_change, registered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.tokens.families import Definitions, Family
    from ullage.tokens.vocabularies import Tokenizer


FREE_CHOICES = (None, "auto", "none")
"""Tool choices that demand no call."""


PLAIN_CALL = 3
"""The framing of a tool call by the plain rule: this, its name, and its arguments as they are written."""


class Cost(NamedTuple):
    """A best estimate, and what budget decisions use instead of it."""

    tokens: int
    ceiling: int


class Counter:
    """Prices texts, messages and the once-a-request part for one model."""

    def __init__(self, family: Family, measures: Measures) -> None:
        self.family = family
        ruled = family.exact and not (measures.custom or family.margin or family.margin_once)
        self.exact = ruled or measures.exact
        self._measures = measures
        self._measure, self._upper = measures.text, measures.upper
        self._scale = 1.0 if measures.custom else family.scale
        self._margin = 1.0 if measures.custom else 1.0 + family.margin
        self._call_scale = self._scale if measures.custom or family.call_scale is None else family.call_scale
        self._is_count = self._scale == self._margin == 1.0 and self._upper is None
        self._framing = dict(family.roles)
        self._priced = remembered(self._price)
        # A result is counted as any text is, then scaled by what results cost more.
        own = None if measures.custom else family.result_scale
        self._result_share = 1.0 if own is None else own / family.scale
        self._plain_results = self._result_share == 1.0 and not family.citations

    def text(self, text: str) -> Cost:
        """What a bare text costs."""
        return self._cost(text, 0)

    def message(self, message: Message, *, parallel: bool = False) -> Cost:
        """What a message costs, framing, calls and media included.

        `parallel` says that it is a result of a step with more than one call: some providers put those
        into one list.
        """
        role = message["role"]
        framing = self._framing.get(role, self.family.message)
        content = message.get("content")
        if content.__class__ is str and (  # the plain message, and nothing to look for
            len(message) == 2 or (role == "tool" and not parallel and self._plain_results)
        ):
            return self._cost(content, framing)
        if role == "tool":
            return self._result(message, framing, parallel)
        tokens, ceiling = self._content(content)
        name = message.get("name")
        if name:
            # A name that only says the role again is a token cheaper.
            framing += self.family.name_field - (name == role and self.family.exact)
            tokens, ceiling = _plus(tokens, ceiling, self._cost(name, 0))
        if self.family.citations and _citable(content):
            framing += self.family.citations
        if self.family.late_tools and _brings_tools(message):
            framing += self.family.late_tools
            ceiling += self.family.late_tools // 2
        calls = message.get("tool_calls")
        if calls:
            tokens, ceiling = _plus(tokens, ceiling, self._calls(calls, framing))
        else:
            tokens, ceiling = tokens + framing, ceiling + math.ceil(framing * self._margin)
        return Cost(tokens, ceiling)

    def request(
        self,
        tools: Sequence[Tool] | None = None,
        response_format: Mapping[str, Any] | None = None,
        *,
        system: bool | str = True,
        tool_choice: Any = None,
        thinking: bool = False,
    ) -> Cost:
        """What is paid once: framing, tool schemas, the structured-output schema.

        `system` is the first system message's text, or whether there is one.
        """
        family = self.family
        once = family.request + (family.thinking if thinking else 0)
        if system is False:
            once += family.no_system
        tokens, ceiling = once, once + family.margin_once
        if tools and (tool_choice != "none" or family.tools.none):
            tokens, ceiling = _plus(tokens, ceiling, self._tools(tools, system, tool_choice))
            system = True if system is False else system
        if response_format:
            tokens, ceiling = _plus(tokens, ceiling, self._schema(response_format, system))
        return Cost(tokens, ceiling)

    def _tools(self, tools: Sequence[Tool], system: bool | str, choice: Any) -> Cost:
        rule = self.family.tools
        more = self._choice(choice, tools) + rule.each * len(tools)
        if rule.property:
            more += rule.property * count_properties(tools)
        cost = self._definitions(rule, tools_texts(tools, rule.rule), system, more)
        loaded = [tool for tool in tools if not tool.get("defer_loading")]
        if len(loaded) == len(tools):
            return cost
        # Tools that the model may load later are not charged yet.
        now = self._tools(loaded, system, choice).tokens if loaded else 0
        return Cost(now, cost.ceiling)

    def _schema(self, response_format: Mapping[str, Any], system: bool | str) -> Cost:
        rule = self.family.schema
        text = schema_text(response_format, rule.rule)
        if text:
            return self._definitions(rule, [text], system, 0)
        more = rule.object if response_format.get("type") == "json_object" else 0
        # What one host leaves out of the prompt, another may put in.
        return Cost(more, more if self.exact else more + rule.margin_once)

    def _content(self, content: Any) -> tuple[int, int]:
        if content is None:
            return 0, 0
        if isinstance(content, str):
            return self._cost(content, 0)
        tokens = ceiling = 0
        for part in content:
            text = part if isinstance(part, str) else part.get("text", part.get("refusal"))
            if isinstance(text, str):
                cost = self._cost(text, 0)
            else:
                cost = Cost(*part_cost(part, self.family.image, self._measure))
            tokens, ceiling = _plus(tokens, ceiling, cost)
        return tokens, ceiling

    def _result(self, message: Message, framing: int, parallel: bool) -> Cost:
        content = message.get("content")
        if parallel and self.family.parallel and isinstance(content, str):
            tokens, shorter = self._measures.quoted(content)
            ceiling = math.ceil(tokens * self._margin) + framing + 1
            if shorter:  # whoever counts it as it stands here is not told less by the ceiling
                ceiling = max(ceiling, self._cost(content, framing).ceiling)
            return Cost(tokens, ceiling)
        tokens, ceiling = self._content(content)
        if self._result_share != 1.0:
            tokens, ceiling = round(tokens * self._result_share), math.ceil(ceiling * self._result_share)
        if self.family.citations and _citable(content):
            framing += self.family.citations
        return Cost(tokens + framing, ceiling + math.ceil(framing * self._margin))

    def _calls(self, calls: Sequence[Mapping[str, Any]], framing: int) -> Cost:
        """The calls of a message, with its framing and with what their results say of them."""
        written = [(call["function"]["name"], arguments_text(call)) for call in calls]
        return self._priced((framing, *written))

    def _price(self, written: tuple[Any, ...]) -> Cost:
        """What calls cost, by the framing of their message and each one's name and arguments."""
        family, framing, calls = self.family, written[0], written[1:]
        measure = self._measure
        # The plain rule: whoever counts calls as they are written is not told less by the ceiling.
        plain = framing + sum(PLAIN_CALL + measure(name) + measure(arguments) for name, arguments in calls)
        if len(calls) > 1 and family.parallel:
            tokens = family.parallel + measure(wrapped(calls))
            return Cost(tokens, max(math.ceil(tokens * self._margin) + family.margin_parallel, plain))
        count = self._measures.compact if family.compact else measure
        framing += family.call * len(calls)
        text = 0
        for name, arguments in calls:
            for template in family.call_names:
                text += measure(name if template == "{}" else template.format(name))
            text += count(arguments) if arguments else 0
            if family.argument:
                framing += family.argument * self._measures.arguments(arguments)
        tokens = framing + (text if self._call_scale == 1.0 else round(text * self._call_scale))
        slack = family.margin_parallel if len(calls) > 1 else 0
        return Cost(tokens, max(math.ceil(tokens * self._margin) + slack, plain))

    def _choice(self, choice: Any, tools: Sequence[Tool]) -> int:
        """What the tool choice adds to the tools."""
        if choice in FREE_CHOICES:
            return 0
        rule = self.family.tools
        chosen = choice if isinstance(choice, dict) else tools[0] if rule.sole and len(tools) == 1 else {}
        function = chosen.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return rule.forced + (rule.named + self._measure(name) if name and rule.named else 0)

    def _definitions(self, rule: Definitions, texts: Sequence[str], system: bool | str, more: int) -> Cost:
        scale = self._scale if rule.scale is None else rule.scale
        margin = self._margin if rule.margin is None else 1.0 + rule.margin
        tokens = round(sum(map(self._measure, texts)) * scale) + rule.once + more
        slack = rule.margin_once
        if system is False:
            tokens += rule.no_system
        elif system is True:  # its text is not known: it may end in a word
            slack += rule.after_word
        elif system[-1:].isalnum():
            tokens += rule.after_word
        return Cost(tokens, math.ceil(tokens * margin) + slack)

    def _cost(self, text: str, framing: int) -> Cost:
        tokens = self._measure(text) if text else 0
        if self._is_count:
            return Cost(tokens + framing, tokens + framing)
        upper = self._upper(text) if self._upper is not None and text else 0
        if self._scale != 1.0:
            tokens = round(tokens * self._scale)
        tokens += framing
        return Cost(tokens, max(math.ceil(tokens * self._margin), upper + framing))


def _plus(tokens: int, ceiling: int, cost: Cost) -> tuple[int, int]:
    return tokens + cost[0], ceiling + cost[1]


def _citable(content: Any) -> bool:
    """Whether a part of the content may be cited."""
    return isinstance(content, list | tuple) and any(
        isinstance(part, dict) and _enabled(part.get("citations")) for part in content
    )


def _brings_tools(message: Message) -> bool:
    item = message.get("item")
    return isinstance(item, dict) and item.get("type") == "additional_tools"


def _enabled(citations: Any) -> bool:
    return isinstance(citations, dict) and citations.get("enabled") is True


@functools.lru_cache(1024)
def counter_for(model: str, api: str | None = None) -> Counter:
    """The counter for `model`: its family's rules (as charged through `api`), or the fallback's."""
    family = family_of(model, api)
    return Counter(family, measures_of(family, registered(model)))


def counter_with(model: str, tokenizer: Tokenizer, api: str | None = None) -> Counter:
    """A counter for `model` whose texts this tokenizer counts, whatever is registered."""
    family = family_of(model, api)
    return Counter(family, measures_of(family, tokenizer))


on_change(counter_for.cache_clear)
