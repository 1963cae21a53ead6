"""The outgoing request: the client's body, counted and made to fit the window of its upstream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ullage.broker.dialects import DIALECTS
from ullage.cost.keys import check_model
from ullage.errors import InvalidConversation, InvalidRequest
from ullage.gateway.bound_thoughts import drop_unbound
from ullage.gateway.conversations import identify, weight_of
from ullage.gateway.limits import NO_LIMIT, input_limit, lower_output, read_limit, read_requested_output
from ullage.gateway.policy_header import HEADER, policy_of
from ullage.gateway.refusals import Refused
from ullage.gateway.request import parse_object, write_json
from ullage.gateway.translation import translate
from ullage.gateway.upstreams import read_model_name
from ullage.target import Target
from ullage.tokens import Count, counter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.fitting.body import FittedRequest
    from ullage.gateway.conversations import Conversation, Conversations, Identity
    from ullage.gateway.gate import Caller
    from ullage.gateway.recall import GatewayRecall
    from ullage.gateway.request import Received
    from ullage.gateway.translation import Translation
    from ullage.gateway.upstream import Upstream
    from ullage.gateway.upstream_counts import UpstreamCounts
    from ullage.gateway.upstreams import Upstreams
    from ullage.target import ApiName
    from ullage.tokens import Cost


class CallRoute(NamedTuple):
    """The API and the path of a call."""

    api: ApiName
    path: str
    """The path at the upstream, below its version."""
    is_fitted: bool = True
    """False for a request that asks the upstream itself to shorten the conversation."""


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A request that is ready to be sent.

    Nobody changes it. The class is not frozen, because a frozen one takes three times as long to make.
    """

    upstream: Upstream
    api: ApiName
    """The API of the request as it is sent."""
    model: str
    """The client's name of the model."""
    target: Target
    data: bytes
    """The received bytes if nothing changed."""
    count: Count
    estimate: Cost
    """Our own count without what was learned about the target."""
    limit: int | None
    most_output: int | None
    identity: Identity
    fitted: FittedRequest | None
    """None for a request of an unknown form, and for one that is only counted."""
    unread: str
    """The reason if the request has an unknown form; otherwise empty."""
    reused: float | None
    """Share of the request that the conversation's request before began with; None for its first request."""
    is_lowered: bool
    """True if the limit of the answer was lowered."""
    is_streamed: bool
    asked: Mapping[str, Any]
    """The client's request."""
    offers_recall: bool = False
    """True if the model may call the recall tool of the gateway."""
    translation: Translation | None = None
    """The translation into the upstream's API; None if the upstream speaks the client's."""
    drops_unbound: bool = False
    """True if the upstream is asked to leave out thinking that is bound to text which was cut."""

    @property
    def is_translated(self) -> bool:
        """True if the upstream is asked in another API than the client's."""
        return self.translation is not None

    @property
    def client_api(self) -> ApiName:
        """The client's own API."""
        return self.api if self.translation is None else self.translation.source

    def path(self, call: CallRoute) -> str:
        """Returns the path at the upstream."""
        return call.path if self.translation is None else DIALECTS[self.api].path


class Preparation:
    """Prepares the requests of all conversations."""

    def __init__(
        self,
        upstreams: Upstreams,
        conversations: Conversations,
        counts: UpstreamCounts,
        recall: GatewayRecall,
        *,
        reserved_output: int | None = None,
    ) -> None:
        """Takes the parts; `reserved_output` is the configured reserve for the answer."""
        self._recall = recall
        self._upstreams = upstreams
        self._conversations = conversations
        self._counts = counts
        self._reserved = reserved_output

    async def prepare(self, request: Received, call: CallRoute, caller: Caller, raw: bytes) -> Outgoing:
        """Returns the request to send; raises Refused or ContextOverflowError if it cannot be sent."""
        body = await parse_object(raw)
        model = read_model_name(body)
        if caller.key is not None:
            check_model(caller.key, model)
        upstream = self._upstreams.find(model)
        room = await self._upstreams.room_of(upstream, model)
        api = self._upstreams.api_of(upstream, model, call.api)
        target = target_of(upstream, model, api)
        await self._counts.load(target)
        lowered = read_limit(request.header("x-ullage-limit"), caller.key)
        requested = read_requested_output(body, call.api)
        limit = input_limit(room, requested, self._reserved, lowered) if call.is_fitted else NO_LIMIT
        offered = call.is_fitted and self._recall.is_offered(caller, body)
        policy, rules = policy_of(request.header(HEADER), caller.key, recall=offered)
        identity = identify(
            request, body, call.api, caller=caller.name, target=target, limit=limit, rules=rules
        )
        given = self._recall.extend(body, call.api, identity) if offered else body
        weight = weight_of(body, call.api, len(raw))
        conversation = self._conversations.get(call.api, identity, self._counts.factor, policy, weight=weight)
        fitted, unread = await self._fit_request(conversation, identity, given, raw)
        count = self._unread_count(target, raw) if fitted is None else fitted.count
        if lowered is not None and not call.is_fitted and count.ceiling > lowered:
            raise Refused(
                "overflow",
                f"A compaction is not trimmed. It may have {count.ceiling:,} tokens, and {lowered:,} are "
                "allowed: raise x-ullage-limit or use another key, or start a new session",
            )
        kept = given if fitted is None else cast("dict[str, Any]", fitted.body)
        translation = None if api == call.api else _translate_request(kept, call, target, unread)
        asked = kept if translation is None else translation.body
        output = lower_output(asked, api, room, count.ceiling)
        sent = output.body
        if upstream.binds_thinking and api == "anthropic.messages" and conversation.was_cut:
            sent = drop_unbound(sent)
        if upstream.renamed and translation is None:
            sent = sent | {"model": upstream.endpoint.model}
        return Outgoing(
            upstream=upstream,
            api=api,
            model=model,
            target=target,
            data=raw if sent is body else write_json(sent),
            count=count,
            estimate=_unread_cost(target, raw) if fitted is None else fitted.fitted.estimate,
            limit=None if limit == NO_LIMIT else limit,
            most_output=output.most,
            identity=identity,
            fitted=fitted,
            unread=unread,
            reused=None if fitted is None else conversation.reused,
            is_lowered=output.lowered,
            is_streamed=body.get("stream") is True,
            translation=translation,
            asked=body,
            offers_recall=offered,
            drops_unbound=sent.get("thinking") is not output.body.get("thinking"),
        )

    def observe(self, outgoing: Outgoing, actual: int) -> bool:
        """Learns the upstream's count of a request; returns True if `save` should be called.

        If the count is above the ceiling, the conversation's next request is fitted with what was learned.
        """
        if outgoing.fitted is None:
            return False
        is_due = self._counts.observe(outgoing.target, outgoing.estimate, actual)
        if actual > outgoing.count.ceiling:
            self._conversations.read_again(outgoing.identity)
        return is_due

    def refuse(self, outgoing: Outgoing, actual: int | None) -> None:
        """Learns that the upstream refused a request as too long."""
        self._counts.refuse(outgoing.target, outgoing.estimate, actual)
        self._conversations.read_again(outgoing.identity)

    def save(self, target: Target) -> None:
        """Writes what was learned about a target to the store; blocks while it is written."""
        self._counts.save(target)

    def _unread_count(self, target: Target, raw: bytes) -> Count:
        return self._counts.factor(target).count(count_unread(target, raw))

    async def _fit_request(
        self, conversation: Conversation, identity: Identity, body: dict[str, Any], raw: bytes
    ) -> tuple[FittedRequest | None, str]:
        """Returns the fitted request; None and the reason if its form is unknown and it surely fits."""
        try:
            return await conversation.fit(body, len(raw)), ""
        except (InvalidRequest, InvalidConversation) as error:
            most = (await asyncio.to_thread(self._unread_count, identity.target, raw)).ceiling
            if most > identity.limit:
                raise Refused(
                    "invalid",
                    f"The request may have {most:,} tokens, {identity.limit:,} are allowed, and Ullage "
                    f"cannot shorten it: {error}",
                ) from None
            return None, str(error)


def _translate_request(body: dict[str, Any], call: CallRoute, target: Target, unread: str) -> Translation:
    """Returns the request in the upstream's API; refuses one that only the client's own API has."""
    if unread:
        raise Refused("invalid", unread)
    if not call.is_fitted:
        raise Refused("path", f"The model's server speaks {target.api}, which has no {call.path}")
    return translate(body, call.api, target.api or call.api, target.model or "")


def target_of(upstream: Upstream, model: str, api: ApiName) -> Target:
    """Returns the target that a request is counted for."""
    endpoint = upstream.endpoint
    return _target(endpoint.model if upstream.renamed else model, api, endpoint.url)


@lru_cache(maxsize=1024)
def _target(model: str, api: ApiName, url: str) -> Target:
    return Target(model=model, api=api, endpoint=url)


def count_unread(target: Target, raw: bytes) -> Count:
    """Counts the JSON text of a request whose form is unknown: its names and marks cost more than framing."""
    cost = _unread_cost(target, raw)
    return Count(cost.tokens, cost.ceiling, exact=False, breakdown={"turns": cost.tokens})


def _unread_cost(target: Target, raw: bytes) -> Cost:
    return counter_for(target).text(raw.decode("utf-8", "replace"))
