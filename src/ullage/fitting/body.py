"""`fit_request`: a whole request in a provider's own format that fits, in the same format.

A `RequestWindow` does the same for all requests of one conversation: each repeats the history of the one
before, and only what is new is read and counted. Parts that fitting does not touch, such as signatures, cache
marks and items of the provider's own tools, stay the very objects that were given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.call_pairs import with_interruptions
from ullage.errors import ContextOverflowError, InvalidRequest
from ullage.fitting.budget import limit_for
from ullage.fitting.fold import FoldPath
from ullage.fitting.options import Extras, check_factor, make_options
from ullage.fitting.policy import check_fit_policy
from ullage.fitting.recall import Recall
from ullage.fitting.request import LastRequest, make_request
from ullage.fitting.state import empty_state
from ullage.intake import copy_value, kind_of, plural, whole_number
from ullage.messages import SYSTEM_ROLES, split_content
from ullage.target import Target, target_of
from ullage.tokens import count_request
from ullage.tokens.calibration import NEUTRAL
from ullage.wire.api import HISTORIES
from ullage.wire.fields import BodyField
from ullage.wire.foreign import check_items
from ullage.wire.original import BodyOrigin, Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.fitting.options import Options
    from ullage.fitting.policy import FitPolicy
    from ullage.fitting.result import Change, Fitted
    from ullage.messages import Message
    from ullage.target import ApiName, ModelLike
    from ullage.tokens import Count
    from ullage.tokens.calibration import Factor
    from ullage.wire import Api, Request

SYSTEM = BodyOrigin(())
"""The origin of a system prompt that stands beside the list of items."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FittedRequest:
    """A request that fits, in the format of the given one."""

    body: Mapping[str, Any]
    """The body to send: the given object if nothing had to change."""
    fitted: Fitted[Message]
    """The result for the messages of the body, as `wire.read` returns them."""

    @property
    def count(self) -> Count:
        """The cost of the request as it is sent."""
        return self.fitted.count

    @property
    def limit(self) -> int:
        """The most input tokens."""
        return self.fitted.limit

    @property
    def changed(self) -> bool:
        """True if the body is not the given one."""
        return self.fitted.changed

    @property
    def dropped(self) -> int:
        """Messages that are no longer there."""
        return self.fitted.dropped

    @property
    def truncated(self) -> int:
        """Messages that are there in a shorter form."""
        return self.fitted.truncated

    @property
    def recalled(self) -> tuple[int, ...]:
        """The places of messages that were taken out and are quoted for the question."""
        return self.fitted.recalled

    @property
    def tokens_before(self) -> int:
        """Tokens of the given request."""
        return self.fitted.tokens_before

    @property
    def tokens_after(self) -> int:
        """Tokens of the request as it is sent."""
        return self.fitted.tokens_after

    @property
    def changes(self) -> tuple[Change, ...]:
        """One change for each message that is not as it was given."""
        return self.fitted.changes

    def __repr__(self) -> str:
        """The figures; the conversation itself does not belong into logs."""
        return repr(self.fitted).replace("<Fitted:", "<FittedRequest:", 1)


class _Reading(NamedTuple):
    """The messages of a body, and where each was read from."""

    head: Mapping[str, Any]
    """The members of the body beside its items."""
    request: Request
    """The request of the head alone: its messages are the system prompt."""
    items: list[Any]
    """Copies of the items, so that a change by their owner is noticed."""
    messages: list[Message]
    origins: list[BodyOrigin]


class RequestWindow:
    """The requests of one conversation, kept within a limit; each costs what is new in it.

    It takes bodies as JSON gives them. One thread at a time may use it.
    """

    def __init__(
        self,
        api: ApiName,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        reserve: int | None = None,
        policy: FitPolicy | None = None,
        factor: Factor = NEUTRAL,
    ) -> None:
        self._api = wire.api_of(api)
        self._target = None if model is None else _at_api(target_of(model), self._api.name)
        self._limit, self._reserve = limit, reserve
        self._policy, self._factor = check_fit_policy(policy), check_factor(factor)
        if limit is not None:
            limit_for(None, limit, reserve)  # a wrong one is an error here
        elif reserve is not None:
            whole_number(reserve, "reserve")
        self._reading: _Reading | None = None
        self._path: FoldPath | None = None
        self._recall, self._last_request = Recall(), LastRequest()

    def __repr__(self) -> str:
        read = 0 if self._path is None else len(self._path.state.history)
        return f"<RequestWindow of {self._api.name}: {plural(read, 'message')}>"

    def __reduce__(self) -> tuple[Callable[[], RequestWindow], tuple[()]]:
        """Copies have the same rules. They read the history again from the next body."""
        made = partial(
            RequestWindow,
            self._api.name,
            model=self._target,
            limit=self._limit,
            reserve=self._reserve,
            policy=self._policy,
            factor=self._factor,
        )
        return made, ()

    @property
    def factor(self) -> Factor:
        """The factor by which the provider's counts differ from ours. A new one reads the history again."""
        return self._factor

    @factor.setter
    def factor(self, factor: Factor) -> None:
        if factor != self._factor:
            self._factor, self._path = check_factor(factor), None

    @property
    def trims(self) -> int:
        """The number of trims that are final."""
        return 0 if self._path is None else self._path.state.trims.number

    def fit(self, body: Mapping[str, Any]) -> FittedRequest:
        """Returns a body that fits. Raises ContextOverflowError if its mandatory part does not.

        An invalid body raises InvalidRequest or InvalidConversation.
        """
        done = self._fit(body, 0)
        if self._form_of(body).patch is not None and not _adds_an_item(done.fitted):
            return done
        # A body that is written as a whole may cost more than its messages: a result that was cut is written
        # as an object, for example. So may one with an item more. So the body itself is counted.
        target, limit, spare = self._target_of(body), done.limit, 0
        while (counted := self._count_body(done.body, target)).ceiling > limit:
            spare += counted.ceiling - limit
            done = self._fit(body, spare)
        fitted = replace(done.fitted, count=counted, tokens_after=counted.tokens, limit=limit)
        return replace(done, fitted=fitted)

    def _count_body(self, body: Mapping[str, Any], target: Target) -> Count:
        return self._factor.count(count_request(body, self._api.name, target.model))

    def _fit(self, body: Mapping[str, Any], spare: int) -> FittedRequest:
        """Returns a body whose messages leave so many tokens of the limit free."""
        try:
            reading, shared = self._read(body)
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply", api=self._api.name) from None
        path = self._path_for(reading, shared, spare)
        self._reading = reading
        for index in range(len(path.state.history), len(reading.messages)):
            message = reading.messages[index]
            path.add(message, pin=_holds_history(message), joins=reading.origins[index].joins)
        state = path.state
        trimmed = None if state.waiting else path.trim_state()
        try:
            fitted = make_request(state, self._recall, self._last_request, trimmed)
        except ContextOverflowError as error:
            raise _with_spare(error, spare) from None
        return FittedRequest(body=self._write_body(body, reading, fitted), fitted=fitted)

    # Reading --------------------------------------------------------------------------------------

    def _read(self, body: Mapping[str, Any]) -> tuple[_Reading, int]:
        """Reads a body; also returns how many messages are as they were in the body before it."""
        if not isinstance(body, dict):
            raise InvalidRequest(f"a body must be a dict, not {kind_of(body)}", api=self._api.name)
        api, before = self._form_of(body), self._reading
        items = body.get(api.history)
        if (
            api.read_items is None
            or not isinstance(items, list)
            or isinstance(body.get("instructions"), list)
        ):
            request = wire.read(body, self._api.name)
            messages = list(request.messages)
            return _Reading(body, request, [], messages, [SYSTEM] * len(messages)), 0
        given = {name: value for name, value in body.items() if name != api.history}
        if before is not None and before.head == given:
            head, request = before.head, before.request
        else:
            head = copy_value(given)
            request = wire.read({**given, api.history: []}, self._api.name)
        reading = _Reading(head, request, [], list(request.messages), [SYSTEM] * len(request.messages))
        if before is None or not before.items or before.request.messages != request.messages:
            return _read_on(api, reading, items), 0
        same = _same_items(before.items, items)
        # A result without an id belongs to a call before it. So reading goes on only where no call is open.
        if same == len(before.items) and self._path is not None and not self._path.state.waiting:
            reading = _keep_valid_part(before, reading)
        reading = _read_on(api, reading, items)
        return reading, _take_over(before, reading, same)

    def _form_of(self, body: Mapping[str, Any]) -> Api:
        """Returns the API whose items the body has. Bedrock wraps the bodies of other APIs."""
        wrapped = None if self._api.form is None else self._api.form(dict(body))
        return self._api if wrapped is None else wire.api_of(wrapped)

    def _target_of(self, body: Mapping[str, Any]) -> Target:
        return self._target or Target(model=wire.read(body, self._api.name).model, api=self._api.name)

    def _path_for(self, reading: _Reading, shared: int, spare: int) -> FoldPath:
        """Returns the path at the last unchanged message; a new path if the options have changed."""
        request = reading.request
        extras = Extras(request.tools or None, request.response_format, request.tool_choice, request.thinking)
        target = self._target or Target(model=request.model, api=self._api.name)
        path = self._path
        limit = limit_for(target, self._limit, self._reserve) - spare
        if path is not None and _has(path.state.options, target, extras, limit):
            if shared < len(path.state.history):
                path.back_to(shared)
                self._recall = Recall()
            return path
        options = make_options(
            target,
            limit,
            extras=extras,
            policy=self._policy,
            tokenizer=None,
            factor=self._factor,
        )
        self._recall = Recall()
        self._path = FoldPath(empty_state(options))
        return self._path

    # Writing --------------------------------------------------------------------------------------

    def _write_body(
        self, body: Mapping[str, Any], reading: _Reading, fitted: Fitted[Message]
    ) -> Mapping[str, Any]:
        """Returns the body with the messages of the result."""
        if not fitted.changed:
            return body
        patch = self._form_of(body).patch
        if not reading.items or patch is None:
            request = replace(reading.request, messages=tuple(fitted.messages))
            written = wire.write(request, self._api.name)
            return {name: body[name] if body.get(name) == value else value for name, value in written.items()}
        kept = [
            Kept(message, None, None)
            if source is None
            else Kept(message, reading.messages[source], reading.origins[source])
            for message, source in zip(fitted.messages, fitted.sources, strict=True)
        ]
        return patch(dict(body), kept)


def _holds_history(message: Message) -> bool:
    """Returns True if a message stands for a part of the conversation that only the provider's server has."""
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") in HISTORIES for part in content)


def _adds_an_item(fitted: Fitted[Message]) -> bool:
    """Returns True if the digest must be an item of its own, because the first system message is no text."""
    first = next((message for message in fitted.messages if message["role"] in SYSTEM_ROLES), None)
    if first is None or first.get("item", {}).get("type", "message") in ("message", "instructions"):
        return False
    return bool(split_content(first["content"])[1])


def _at_api(target: Target, api: ApiName) -> Target:
    """Returns the target with the API of the bodies, unless the caller names an API."""
    return target if target.api is not None else replace(target, api=api)


def _has(options: Options, target: Target, extras: Extras, limit: int) -> bool:
    return options.target == target and options.extras == extras and options.given_limit == limit


def _with_spare(error: ContextOverflowError, spare: int) -> ContextOverflowError:
    """Returns the error with the caller's own limit; the tokens that were kept free count as turns."""
    blocks = {**error.breakdown, "turns": error.breakdown["turns"] + spare}
    return ContextOverflowError(error.tokens + spare, error.limit + spare, blocks)


def _read_on(api: Api, reading: _Reading, items: Sequence[Any]) -> _Reading:
    """Reads the items that come after those that the reading has."""
    start = len(reading.items)
    place = BodyField([*reading.items, *copy_value(items[start:])], api.name, api.history)
    messages, origins = [*reading.messages], [*reading.origins]
    check_items(place.value, api.name, start)
    if api.read_items is not None:
        for message, origin in api.read_items(place, start):
            messages.append(message)
            origins.append(origin)
    return _Reading(reading.head, reading.request, place.value, messages, origins)


def _same_items(before: Sequence[Any], items: Sequence[Any]) -> int:
    """Returns the number of unchanged items at the beginning; cache marks do not count."""
    for index, (old, new) in enumerate(zip(before, items, strict=False)):
        if old != new and _strip_cache_marks(old) != _strip_cache_marks(new):
            return index
    return min(len(before), len(items))


def _keep_valid_part(before: _Reading, head: _Reading) -> _Reading:
    """Returns the part of a reading that is also valid for a longer body."""
    kept = len(before.messages)
    if before.messages[-1]["role"] == "assistant":
        kept -= 1  # in some APIs the next item may belong to the same message
    origins = before.origins[:kept]
    start = next((origin.items[-1] + 1 for origin in reversed(origins) if origin.items), 0)
    return _Reading(head.head, head.request, before.items[:start], before.messages[:kept], origins)


def _take_over(before: _Reading, reading: _Reading, same: int) -> int:
    """Puts the unchanged messages of the last reading into the new one; returns their number."""
    shared = 0
    for old, new in zip(before.origins, reading.origins, strict=False):
        if old != new or (new.items and new.items[-1] >= same):
            break
        shared += 1
    reading.messages[:shared] = before.messages[:shared]
    return shared


def _strip_cache_marks(value: Any) -> Any:
    """Returns a value without cache marks, which clients move from message to message and which are free."""
    if isinstance(value, dict):
        return {name: _strip_cache_marks(each) for name, each in value.items() if name != "cache_control"}
    return [_strip_cache_marks(each) for each in value] if isinstance(value, list) else value


def fit_request(
    body: Mapping[str, Any],
    api: ApiName = "anthropic.messages",
    *,
    model: ModelLike = None,
    limit: int | None = None,
    reserve: int | None = None,
    policy: FitPolicy | None = None,
    repair: bool = False,
) -> FittedRequest:
    """Returns a request in its provider's format that fits in `limit` tokens, less `reserve` if given too.

    Without a limit, the table of models has the window of the body's model. Parts that did not have to change
    are the very objects that were given, and if nothing had to, so is the body. With `repair`, a call without
    a result gets the result `[interrupted]` instead of an error.
    """
    dumped = wire.plain_body(body, api)
    given = _add_missing_results(dumped, api) if repair else dumped
    window = RequestWindow(api, model=model, limit=limit, reserve=reserve, policy=policy)
    done = window.fit(given)
    if given is not dumped:
        done = replace(done, fitted=replace(done.fitted, changed=True))
    if not done.changed:
        return replace(done, body=body)
    return done if dumped is body else replace(done, body=_with_originals(done.body, dumped, body))


def _with_originals(written: Mapping[str, Any], dumped: Mapping[str, Any], body: Any) -> Mapping[str, Any]:
    """Returns the body with the caller's own objects for all members and items that did not change."""
    if not isinstance(body, Mapping):
        return written
    made = dict(written)
    for name, before in dumped.items():
        after = made.get(name)
        if after is before:
            made[name] = body[name]
        elif isinstance(after, list) and isinstance(before, list):
            own = {id(each): body[name][place] for place, each in enumerate(before)}
            made[name] = [own.get(id(each), each) for each in after]
    return made


def _add_missing_results(body: Mapping[str, Any], api: ApiName) -> Mapping[str, Any]:
    """Returns the body with a result for each call; the same object if none is missing."""
    request = wire.read(body, api)
    messages, places = with_interruptions(request.messages)
    if None not in places:
        return body
    return wire.write(replace(request, messages=tuple(messages)), api)
