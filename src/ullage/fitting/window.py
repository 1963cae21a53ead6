"""`Window`: a conversation kept within a limit, and `fit`, which reads a whole one at once.

A window holds one value, the state of the fold, and replaces it by the next one. The functions of `fold` and
`revision` make the next state, and those of `request` make the request at a state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.call_pairs import with_interruptions
from ullage.errors import ConfigurationError
from ullage.fitting import fold
from ullage.fitting.budget import limit_for
from ullage.fitting.fold import FoldPath
from ullage.fitting.options import Extras, make_options, remake_options
from ullage.fitting.policy import FitPolicy, check_fit_policy
from ullage.fitting.recall import Recall
from ullage.fitting.request import LastRequest, count_request, make_request
from ullage.fitting.result import with_originals
from ullage.fitting.revision import renew, retract
from ullage.fitting.state import FoldState, empty_state
from ullage.intake import copy_value, plural, read_list, read_message, read_tools, whole_number
from ullage.target import target_of
from ullage.tokens import counter_for
from ullage.tokens.calibration import NEUTRAL, Factor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ullage.call_pairs import Waiting
    from ullage.fitting.options import Options
    from ullage.fitting.result import Fitted, M
    from ullage.messages import Message, Tool
    from ullage.target import ModelLike, Target
    from ullage.tokens import Cost, Count, Tokenizer


class Window:
    """A conversation kept within a limit. Each turn only pays for its new messages."""

    def __init__(
        self,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        reserve: int | None = None,
        tools: Iterable[Any] | None = None,
        policy: FitPolicy | None = None,
        tokenizer: Tokenizer | None = None,
        factor: Factor = NEUTRAL,
    ) -> None:
        target = target_of(model)
        options = make_options(
            target,
            limit_for(target, limit, reserve),
            extras=Extras(read_tools(tools)),
            policy=check_fit_policy(policy),
            tokenizer=tokenizer,
            factor=factor,
        )
        self.state = empty_state(options)

    def __repr__(self) -> str:
        model = self.target.model or "an unknown model"
        return f"<Window of {model}: {plural(len(self), 'message')}, limit {self.limit}>"

    def __reduce__(self) -> tuple[Callable[..., Window], tuple[FoldState, Sequence[Any] | None]]:
        """Copies and pickles go on from the same state, each for itself."""
        return _window_at, (self.state, self._given)

    def __len__(self) -> int:
        """The number of messages that were appended."""
        return len(self.state.history)

    @property
    def state(self) -> FoldState:
        """The state of the fold, a frozen value. A window continues from a state that is assigned to it."""
        return self._path.state

    @state.setter
    def state(self, state: FoldState) -> None:
        self._revise(state)
        self._recall, self._last_request = Recall(), LastRequest()

    def _revise(self, state: FoldState) -> None:
        """Goes on from a state that was not reached by one more message."""
        self._path = FoldPath(state)
        self._given: Sequence[Any] | None = None

    @property
    def target(self) -> Target:
        """The model whose rules count, and the destination of its requests."""
        return self.state.options.target

    @property
    def model(self) -> str | None:
        """The model that counts; another model needs another window."""
        return self.target.model

    @property
    def limit(self) -> int:
        """The most input tokens."""
        return self.state.options.given_limit

    @property
    def tools(self) -> Sequence[Tool] | None:
        """Copies of the tools that are sent with each request."""
        tools = self.state.options.extras.tools
        return None if tools is None else tuple(map(copy_value, tools))

    @property
    def policy(self) -> FitPolicy:
        """The rules of a trim."""
        return self.state.options.policy

    @property
    def waiting(self) -> Waiting:
        """The calls that have no result yet."""
        return self.state.waiting

    @property
    def trims(self) -> int:
        """The number of trims that are final."""
        return self.state.trims.number

    @property
    def utilization(self) -> float:
        """The used share of the limit, or of `max_turns` if that is larger."""
        state, most = self.state, self.policy.max_turns
        tokens = state.ceiling / max(1, state.options.limit)
        return tokens if most is None else max(tokens, state.totals.turns / most)

    def check(self, message: Message) -> tuple[Waiting, Cost]:
        """Returns the calls without a result after this message, and its cost; changes nothing.

        Raises InvalidConversation if `append` would.
        """
        return fold.price(self.state, read_message(message, len(self)))

    def append(self, message: Message, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a message. An assistant message answers the last request, so its trim becomes final.

        The window keeps a copy: a message that its owner changes later is sent as it was counted.
        """
        self._path.add(copy_value(read_message(message, len(self))), pin=pin, priority=priority)
        self._given = None

    def sync(self, messages: Iterable[Any], tools: Iterable[Any] | None = None) -> None:
        """Reads a whole history, as a host without a window of its own has it. Only what is new costs work.

        A history that changed is read again from the first message that is different. Other `tools` read it
        again from its start; None leaves the tools as they are. `fitted` then returns the very objects that
        were given here for all messages that it did not change.
        """
        given = read_list(messages)
        if tools is not None:
            self._take_tools(read_tools(tools))
        shared = self._count_unchanged(given)
        if shared < len(self):
            self._path.back_to(shared)
            self._recall = Recall()
        for index in range(shared, len(given)):
            self._path.add(copy_value(read_message(given[index], index)))
        self._given = given

    def _count_unchanged(self, given: Sequence[Any]) -> int:
        """Returns the number of unchanged messages at the beginning."""
        for index, (message, new) in enumerate(zip(self.state.history, given, strict=False)):
            # Objects of an SDK are equal to nothing but themselves, and their content may have changed.
            if message != new and message != read_message(new, index):
                return index
        return min(len(self), len(given))

    def _take_tools(self, tools: Sequence[Tool] | None) -> None:
        options = self.state.options
        if tools != options.extras.tools:
            self._read_again(remake_options(options, extras=options.extras._replace(tools=tools)))

    def retract(self) -> None:
        """Removes the last message, which must be an unanswered user message."""
        self._revise(retract(self.state))

    def renew(self, message: Message) -> None:
        """Replaces the first message, a system message, by `message`; trims that were made before stay."""
        self._revise(renew(self.state, copy_value(read_message(message, 0))))

    def compact(self, share: float) -> None:
        """Trims here and now, down to this share of the room, whether it is needed or not."""
        self._revise(fold.compact(self.state, share))

    def fitted(self) -> Fitted[Any]:
        """Returns the request to send now; raises ContextOverflowError if its mandatory part does not fit.

        Messages that were appended are the window's own in every result: change copies of them.
        """
        state = self.state
        trimmed = None if state.waiting else self._path.trim_state()
        fitted = make_request(state, self._recall, self._last_request, trimmed)
        return fitted if self._given is None else with_originals(fitted, self._given)

    def count(self) -> Count:
        """Returns the cost of a request at this point, before any trim; calls may still wait for results."""
        return count_request(self.state)

    def forecast(self) -> tuple[int, ...]:
        """Returns the places of the messages that the next trim will probably evict."""
        return fold.forecast(self.state)

    def recount(self) -> None:
        """Prices the trim that happens here again, after its tokenizer has learned the texts that it made."""
        trimmed = self._path.trim_state()
        if trimmed.is_trimmed:
            options = self.state.options
            self._path.reprice(fold.reprice(trimmed, counter_for(options.target, options.tokenizer)))

    def refold(
        self,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        policy: FitPolicy | None = None,
        factor: Factor | None = None,
    ) -> None:
        """Reads the whole history again, for another model, limit, policy or factor."""
        remade = remake_options(
            self.state.options,
            target=None if model is None else target_of(model),
            limit=None if limit is None else whole_number(limit, "limit", 1),
            policy=None if policy is None else check_fit_policy(policy),
            factor=factor,
        )
        self._read_again(remade)

    def _read_again(self, options: Options) -> None:
        state = self.state
        self.state = fold.read(options, state.history, {mark.place: mark for mark in state.marks})

    def pin(self, index: int) -> None:
        """Keeps the message at `index` of the history from now on; the history is read again."""
        if whole_number(index, "index") >= len(self):
            raise ConfigurationError(
                f"index is {index}, and the window has {plural(len(self), 'message')}; "
                "pin a message that comes later with append(message, pin=True)"
            )
        pins = self.policy.pins | {index}
        self.refold(policy=replace(self.policy, pins=pins))


def _window_at(state: FoldState, given: Sequence[Any] | None) -> Window:
    window = Window.__new__(Window)
    window.state = state
    window._given = given  # noqa: SLF001 - made here
    return window


def fit(  # noqa: PLR0917 - callers hand on a request's own three, in the order of a request
    messages: Iterable[M],
    model: ModelLike = None,
    tools: Iterable[Any] | None = None,
    limit: int | None = None,
    reserve: int | None = None,
    policy: FitPolicy | None = None,
    *,
    repair: bool = False,
) -> Fitted[M]:
    """Returns messages that fit in `limit` input tokens, less `reserve` if both are given.

    A message is a dict, any other Mapping, or an SDK's object with `model_dump`. An unchanged message is
    returned as the object that was given. So is the list, if no message changed. With `repair`, a call
    without a result gets the result `[interrupted]` instead of an error.
    """
    state = Window(model=model, limit=limit, reserve=reserve, tools=tools, policy=policy).state
    given, origins = read_list(messages), None
    if repair:
        given, origins = with_interruptions(given)
    for index, each in enumerate(given):
        # No copy: nobody can change the message before this returns.
        state = fold.append(state, read_message(each, index))
    fitted = with_originals(make_request(state, Recall(), LastRequest()), given)
    if origins is None:
        return fitted
    sources = [None if source is None else origins[source] for source in fitted.sources]
    return replace(fitted, sources=sources, changed=fitted.changed or None in origins)


enforce_context_limit = fit
