"""Counts the tokens of each part of a request to one target.

The cost of a request is `request(...)` once plus `message(...)` for each message. Costs add up, so a running
conversation only counts its new messages.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.messages import CHARGED, RESULT_ROLES, arguments_text, calls_of
from ullage.target import Target, target_of
from ullage.tokens.definitions import count_properties, has_references, schema_text, tools_texts, wrap_calls
from ullage.tokens.families import family_of
from ullage.tokens.measures import Measures, measures_of, remember_results
from ullage.tokens.media import beside_content, part_cost
from ullage.tokens.registry import find_registered, on_change
from ullage.tokens.vocabularies import check_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.target import ModelLike
    from ullage.tokens.families import Definitions, Family
    from ullage.tokens.vocabularies import Tokenizer


FREE_CHOICES = (None, "auto", "none")
"""Values of `tool_choice` that do not force a call."""


FEW = 2
"""Number of tools that the framing rule covers. Each further tool adds the margin `margin_each` to the
ceiling."""
WRITTEN_OUT = 2
"""Highest cost of a tool definition with references, as a multiple of the tokens of its JSON."""

PLAIN_CALL = 3
"""Framing of a tool call by the plain rule, in tokens. The name and the arguments are counted in addition."""


class Cost(NamedTuple):
    """Tokens as a best estimate, and a ceiling. Budget decisions use the ceiling."""

    tokens: int
    ceiling: int


_new = tuple.__new__
"""Makes a named tuple in half the time of a call of its class. Each message and each text makes one."""


class Counter:
    """Counts texts, messages and the fixed part of a request for one model."""

    def __init__(self, family: Family, measures: Measures) -> None:
        self.family = family
        ruled = family.exact and not (measures.custom or family.margin or family.margin_once or family.maybe)
        self.exact = ruled or measures.exact
        self._measures = measures
        self._measure, self._upper = measures.text, measures.upper
        self._scale = 1.0 if measures.custom else family.scale
        self._margin = 1.0 if measures.custom else 1.0 + family.margin
        self._call_scale = self._scale if measures.custom or family.call_scale is None else family.call_scale
        self._is_count = self._scale == self._margin == 1.0 and self._upper is None
        self._framing = dict(family.roles)
        if "tool" in self._framing:  # The role `function` is the older name of `tool`.
            self._framing.setdefault("function", self._framing["tool"])
        self._priced = self._price if measures.learns else remember_results(self._price)
        # A tool result is counted like any text. The count is then multiplied by the share below.
        own = None if measures.custom else family.result_scale
        self._result_share = 1.0 if own is None else own / family.scale
        self._plain_results = self._result_share == 1.0 and not family.citations

    def text(self, text: str) -> Cost:
        """Returns the cost of a text without framing."""
        return self._cost(text, 0)

    def message(self, message: Message, *, parallel: bool = False) -> Cost:
        """Returns the cost of a message with its framing, calls and media.

        `parallel` is True if the message is the result of a step with more than one call. Some providers put
        such results into one list.
        """
        role = message["role"]
        framing = self._framing.get(role, self.family.message)
        content = message.get("content")
        if content.__class__ is str and (  # Fast path: a plain message has nothing else to count.
            len(message) == 2 or (role == "tool" and not parallel and self._plain_results)
        ):
            return self._cost(content, framing)
        if role in RESULT_ROLES:
            return self._result(message, framing, parallel)
        tokens, ceiling = self._content(content)
        name = message.get("name")
        if name:
            # A name that repeats the role costs one token less.
            framing += self.family.name_field - (name == role and self.family.exact)
            tokens, ceiling = _plus(tokens, ceiling, self._cost(name, 0))
        if self.family.citations and _is_citable(content):
            framing += self.family.citations
        if self.family.late_tools and _brings_tools(message):
            framing += self.family.late_tools
            ceiling += self.family.late_tools // 2
        if not CHARGED.isdisjoint(message):
            tokens, ceiling = _plus(tokens, ceiling, Cost(*beside_content(message, self.text)))
        calls = calls_of(message)
        if calls:
            tokens, ceiling = _plus(tokens, ceiling, self._calls(calls, framing))
        elif isinstance(content, str):
            # In one sum, as above: members that cost nothing must not change the count.
            bare, framed = self._cost(content, 0), self._cost(content, framing)
            tokens, ceiling = tokens + framing, ceiling - bare.ceiling + framed.ceiling
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
        """Returns the cost of the parts that occur once: framing, tool schemas, structured-output schema.

        `system` is the text of the first system message. True means that there is one with unknown text,
        False that there is no system message.
        """
        family = self.family
        once = family.request + (family.thinking if thinking else 0)
        if system is False:
            once += family.no_system
        tokens, ceiling = once, once + family.margin_once + family.maybe
        if tools and (tool_choice != "none" or family.tools.none):
            tokens, ceiling = _plus(tokens, ceiling, self._tools(tools, system, tool_choice))
            system = True if system is False else system
        if response_format:
            tokens, ceiling = _plus(tokens, ceiling, self._schema(response_format, system))
        return Cost(tokens, ceiling)

    def _tools(self, tools: Sequence[Tool], system: bool | str, choice: Any) -> Cost:
        rule = self.family.tools
        more = rule.each * len(tools)
        if rule.property:
            more += rule.property * count_properties(tools)
        cost = self._definitions(
            rule, tools_texts(tools, rule.rule), system, more, self._choice(choice, tools)
        )
        cost = cost._replace(ceiling=cost.ceiling + rule.margin_each * max(0, len(tools) - FEW))
        if rule.rule == "values" and has_references(tools):
            # Providers write references out, recursive ones over several levels. The highest recorded cost is
            # twice the JSON.
            most = WRITTEN_OUT * sum(map(self._measure, tools_texts(tools, "json")))
            cost = cost._replace(ceiling=max(cost.ceiling, most + rule.margin_once))
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
        if self.exact and rule.rule != "free":
            return Cost(more, more + rule.maybe)
        # A host may put a schema into the prompt that another host leaves out.
        left_out = math.ceil(self._measure(schema_text(response_format, "json")) * (rule.margin or 0))
        return Cost(more, more + rule.maybe + left_out + rule.margin_once)

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
                cost = Cost(*part_cost(part, self.family.image, self.text))
            tokens, ceiling = _plus(tokens, ceiling, cost)
        return tokens, ceiling

    def _result(self, message: Message, framing: int, parallel: bool) -> Cost:
        content = message.get("content")
        if message["role"] == "function":
            framing += self.family.name_field + self._measure(message["name"])
        if parallel and self.family.parallel and isinstance(content, str):
            tokens, shorter = self._measures.quoted(content)
            ceiling = math.ceil(tokens * self._margin) + framing + 1
            # A client that counts the result as it is written here must not count more than the ceiling.
            if shorter:
                ceiling = max(ceiling, self._cost(content, framing).ceiling)
            return _new(Cost, (tokens, ceiling))
        tokens, ceiling = self._content(content)
        if self._result_share != 1.0:
            tokens, ceiling = round(tokens * self._result_share), math.ceil(ceiling * self._result_share)
        if self.family.citations and _is_citable(content):
            framing += self.family.citations
        return Cost(tokens + framing, ceiling + math.ceil(framing * self._margin))

    def _calls(self, calls: Sequence[Mapping[str, Any]], framing: int) -> Cost:
        """Returns the cost of a message's calls with its framing and the names that results repeat."""
        written = [(call["function"]["name"], arguments_text(call)) for call in calls]
        return self._priced((framing, *written))

    def _price(self, written: tuple[Any, ...]) -> Cost:
        """Returns the cost of calls. `written` is the framing, then (name, arguments) of each call."""
        family, framing, calls = self.family, written[0], written[1:]
        measure = self._measure
        # A client that counts calls by the plain rule must not count more than the ceiling.
        plain = framing + sum(PLAIN_CALL + measure(name) + measure(arguments) for name, arguments in calls)
        if len(calls) > 1 and family.parallel:
            tokens = family.parallel + measure(wrap_calls(calls))
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
        slack = family.margin_parallel if len(calls) > 1 else family.margin_call
        return Cost(tokens, max(math.ceil(tokens * self._margin) + slack, plain))

    def _choice(self, choice: Any, tools: Sequence[Tool]) -> int:
        """Returns the tokens that the tool choice adds to the tools."""
        if choice in FREE_CHOICES:
            return 0
        rule = self.family.tools
        chosen = choice if isinstance(choice, dict) else tools[0] if rule.sole and len(tools) == 1 else {}
        function = chosen.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return rule.forced + (rule.named + self._measure(name) if name and rule.named else 0)

    def _definitions(
        self, rule: Definitions, texts: Sequence[str], system: bool | str, more: int, chosen: int = 0
    ) -> Cost:
        scale = self._scale if rule.scale is None else rule.scale
        margin = self._margin if rule.margin is None else 1.0 + rule.margin
        tokens = round(sum(map(self._measure, texts)) * scale) + rule.once + more + chosen
        slack = rule.margin_once + rule.maybe
        if system is False:
            tokens += rule.no_system
        elif system is True:  # The text is unknown, and may end in a word.
            slack += rule.after_word
        elif system[-1:].isalnum():
            tokens += rule.after_word
        known = rule.once + chosen if rule.steady else 0
        return Cost(tokens, known + math.ceil((tokens - known) * margin) + slack)

    def _cost(self, text: str, framing: int) -> Cost:
        tokens = self._measure(text) if text else 0
        if self._is_count:
            tokens += framing
            return _new(Cost, (tokens, tokens))
        upper = self._upper(text) if self._upper is not None and text else 0
        if self._scale != 1.0:
            tokens = round(tokens * self._scale)
        tokens += framing
        return Cost(tokens, max(math.ceil(tokens * self._margin), upper + framing))


def _plus(tokens: int, ceiling: int, cost: Cost) -> tuple[int, int]:
    return tokens + cost[0], ceiling + cost[1]


def _is_citable(content: Any) -> bool:
    """Returns True if the model may cite a part of the content."""
    return isinstance(content, list | tuple) and any(
        isinstance(part, dict) and _is_enabled(part.get("citations")) for part in content
    )


def _brings_tools(message: Message) -> bool:
    item = message.get("item")
    return isinstance(item, dict) and item.get("type") == "additional_tools"


def _is_enabled(citations: Any) -> bool:
    return isinstance(citations, dict) and citations.get("enabled") is True


def counter_for(model: ModelLike, tokenizer: Tokenizer | None = None) -> Counter:
    """Returns the counter of a model or target, by the rules of its family or of the fallback.

    If `tokenizer` is given, it counts the texts. Registered tokenizers are then ignored.
    """
    target = target_of(model)
    if tokenizer is None:
        return _counter(target)
    family = family_of(target.model, target.api, target.endpoint)
    return Counter(family, measures_of(family, check_tokenizer(tokenizer)))


@functools.lru_cache(1024)
def _counter(target: Target) -> Counter:
    family = family_of(target.model, target.api, target.endpoint)
    return Counter(family, measures_of(family, find_registered(target.model)))


on_change(_counter.cache_clear)
