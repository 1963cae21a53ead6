"""`Context`: a conversation that is kept in a journal and rendered within its budget.

A `Context` is composed of a `Record` (the events and their journal), a `Renderer` (the windows and their
limits), a `Meter` and, if there is a summarizer, `Summaries`. Each method calls one of these parts.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from ullage.call_pairs import make_unanswered_error
from ullage.context.blocks import blocks_of, estimate_outputs, in_front
from ullage.context.forms import check_form
from ullage.context.journal import JournalEvent
from ullage.context.options import ContextOptions, takes_options
from ullage.context.recall import MOST_TOKENS, WINDOW_SHARE, answer_recall
from ullage.context.record import Record
from ullage.context.renderer import Renderer
from ullage.context.request_log import RequestLog
from ullage.errors import ConfigurationError
from ullage.fitting.pieces import letters_of, piece_of
from ullage.intake import check_share, check_text, copy_value, plural, read_tools, whole_number
from ullage.target import target_of
from ullage.tokens import RemoteTokenizer
from ullage.tokens.calibration import NEUTRAL
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal
    from types import EllipsisType

    from ullage.context.bounds import Bounds
    from ullage.context.forms import Compress
    from ullage.context.journal import Item, Journal, Piece
    from ullage.context.search import Hit
    from ullage.fitting import Change, Fitted
    from ullage.messages import Message, Tool
    from ullage.target import ModelLike
    from ullage.tokens import Cost, Count, Tokenizer
    from ullage.tokens.calibration import Factor
    from ullage.usage import Crossed


class Context:
    """A conversation: turns, memory, summary and budget. Its journal keeps everything that must not be lost.

    The defaults suit a shell: its prompt, 4,096 tokens and 40 turns. A program gets the whole window with
    `Context(model=…, system_prompt=…, token_budget=None, max_turns=None)`. `ContextOptions` describes each
    keyword argument.
    """

    @takes_options(ContextOptions)
    def __init__(self, options: ContextOptions) -> None:
        self.record = Record(
            options.journal, options.session, options.system_prompt, options.memory_max_chars
        )
        self.meter = Meter() if options.meter is None else options.meter
        self.requests = RequestLog()
        bounds = options.bounds()
        self.summaries = options.summaries(bounds.limit)
        self.renderer = Renderer(self.record, bounds, self.summaries, use_tool_role=options.use_tool_role)
        self._token_budget = options.token_budget
        self._clock = options.clock
        self.record.replay(self.renderer.hear)
        self.renderer.windows.opened = len(self.record.state.lines)

    def __repr__(self) -> str:
        model = self.bounds.target.model or "an unknown model"
        return f"<Context {self.session} of {model}: {plural(len(self), 'turn')}, limit {self.limit}>"

    def __reduce__(self) -> NoReturn:
        """A second one would write into the same session of the journal."""
        raise ConfigurationError(
            "A Context cannot be pickled or copied, because it writes to its journal. "
            "Hand on context.to_messages(), or open the session again: Context.resume(session, journal)"
        )

    @classmethod
    def resume(cls, session: str, journal: Journal, **options: Any) -> Context:
        """Returns the conversation as the journal has it; nothing is written.

        Calls without a result may still run in another process, so their results are accepted until the next
        user turn is appended. That turn gives each call that still has no result the result `[interrupted]`.
        """
        context = cls(session=session or None, journal=journal, **options)
        context.record.leave_calls()
        return context

    # Turns ------------------------------------------------------------------------------------------

    @property
    def session(self) -> str:
        """The name of the conversation in its journal."""
        return self.record.session

    @property
    def journal(self) -> Journal:
        """The journal that keeps the conversation."""
        return self.record.journal

    @property
    def turns(self) -> Sequence[Message]:
        """Every turn as it was appended, sent or not."""
        return self.record.turns

    def __len__(self) -> int:
        """The number of turns."""
        return len(self.record)

    @property
    def waiting(self) -> Sequence[str]:
        """The ids of the tool calls that have no result yet."""
        return self.record.waiting

    def append(self, message: Message, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a turn and writes it to the journal; raises InvalidConversation if it cannot come next.

        The turn is a copy of the message, so later changes to the message do not change the turn.
        """
        self.record.append(message, pin=pin, priority=priority)
        self._note_answer()

    def append_later(self, message: Message) -> None:
        """Adds a turn that the journal cannot take now; the next change, or `save`, writes it."""
        self.record.append_later(message)
        self._note_answer()

    def append_user(self, content: Any, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a user turn, preceded by the output of commands since the last one."""
        state = self.record.state
        printed = blocks_of(
            state.outputs,
            self._room() if state.outputs else 0,
            self.count_text,
            lambda text: self.journal.keep(self.session, [text], [state.printed_by.get(text)]),
        )
        content, quoted = in_front(printed, content)
        self.record.append({"role": "user", "content": content}, pin=pin, priority=priority, quoted=quoted)

    def append_exec_output(self, text: str) -> None:
        """Keeps the output of a command for the next user turn."""
        self.record.append_exec_output(text)

    @property
    def printed_tokens(self) -> int:
        """Returns the most tokens that the output of commands will add to the next user turn."""
        return estimate_outputs(self.record.state.outputs, self._room(), self.count_text)

    def _room(self) -> int:
        """Returns the tokens that the blocks of the prompt leave for turns."""
        blocks = self.count().breakdown
        return self.limit - sum(tokens for name, tokens in blocks.items() if name != "turns")

    def _note_answer(self) -> None:
        """Notes an answer if the last turn is one, and starts the next summary before it is needed."""
        if self.record.state.turns[-1].message["role"] != "assistant":
            return
        if self.renderer.unanswered is not None:
            self.requests.note(self.renderer.unanswered, self._clock())
            self.renderer.unanswered = None
        self.renderer.look_ahead()

    def interrupt(self) -> None:
        """Gives each open call the result `[interrupted]`, so that the conversation can go on.

        If the journal cannot take these results now, the next user turn writes them.
        """
        self.record.interrupt()

    def compact(self, share: float = 0.25) -> int:
        """Trims now, down to this share of the room; returns the number of tokens saved."""
        check_share(share, "share", least=0.01)
        before = self.estimate_tokens()
        left = self.record.interruptions()
        if self.waiting and not left:
            raise make_unanswered_error(self.record.state.waiting)
        self.record.change(*left, JournalEvent("compact", {"share": share}))
        return before - self.estimate_tokens()

    def undo(self) -> Sequence[Message]:
        """Removes the last exchange, and returns its turns; right after a reset, brings its turns back."""
        return self.record.undo()

    def reset(self) -> None:
        """Clears turns, waiting output and summary; keeps memory, project, usage and warnings."""
        self.record.reset()

    def save(self) -> None:
        """Writes the turns that the journal could not take before; does nothing if all are written."""
        self.record.save()

    # The prompt and its blocks ----------------------------------------------------------------------

    @property
    def system_prompt(self) -> str:
        """The system prompt, without its blocks."""
        return self.record.system_prompt

    @system_prompt.setter
    def system_prompt(self, prompt: str) -> None:
        self.record.system_prompt = prompt

    @property
    def memory(self) -> Sequence[Item]:
        """The items that are remembered in every conversation."""
        return self.record.memory

    def remember(self, content: str, kind: str = "") -> Item:
        """Remembers an item, which is in the prompt from now on."""
        return self.record.remember(content, kind)

    def forget(self, number: int) -> bool:
        """Forgets an item; returns False if there is no item with this number."""
        return self.record.forget(number)

    @property
    def project(self) -> str:
        """The file tree in the prompt, or empty."""
        return self.record.project

    def set_project(self, tree: str, *, at_trim: bool = False) -> None:
        """Puts a file tree into the prompt: now, or with the next trim, which changes the prompt anyway."""
        self.record.set_project(tree, at_trim=at_trim)

    @property
    def goal(self) -> str:
        """The goal that was set and has not ended, or empty."""
        return self.record.goal

    @goal.setter
    def goal(self, text: str) -> None:
        self.record.goal = text

    @property
    def pursuing(self) -> bool:
        """False while the goal is paused: requests are then made as if there were no goal."""
        return self.record.pursuing

    @pursuing.setter
    def pursuing(self, pursuing: bool) -> None:
        self.record.pursuing = pursuing

    @property
    def in_goal_mode(self) -> bool:
        """True if requests are made for the goal: there is one, and it is not paused."""
        return self.record.in_goal_mode

    @property
    def summary(self) -> str:
        """The summary of evicted turns, or empty."""
        return self.record.summary

    @property
    def summary_failure(self) -> BaseException | None:
        """The reason why the last summary failed; None if it did not fail."""
        return self.summaries.failure if self.summaries else None

    def recall(self, handle: str) -> Piece | None:
        """Returns the piece with this handle, or None."""
        return self.record.recall(handle)

    def search(self, words: str, most: int = 20) -> Sequence[Hit]:
        """Returns the texts of this conversation that match the words, the best first, also evicted ones.

        Not all words need to occur. Text in quotation marks must occur exactly.
        """
        return self.record.search(words, most)

    # Limits -----------------------------------------------------------------------------------------

    @property
    def bounds(self) -> Bounds:
        """The model, the limit and the policy of the conversation."""
        return self.renderer.bounds

    @property
    def limit(self) -> int:
        """The limit in input tokens: `token_budget`, or the room in the window if that is smaller."""
        return self.bounds.limit

    # Without a setter, so that an assignment is an error and not an attribute that nothing reads.

    @property
    def model(self) -> str | None:
        """The model that counts; `use_model` changes it."""
        return self.bounds.target.model

    @property
    def token_budget(self) -> int | None:
        """The budget as it was given; `lower_limit` lowers the limit."""
        return self._token_budget

    @property
    def max_turns(self) -> int | None:
        """The most turns that are sent."""
        return self.bounds.policy.max_turns

    @property
    def tools(self) -> Sequence[Tool] | None:
        """The tools that are sent, as copies; `use_tools` changes them."""
        tools = self.bounds.tools
        return None if tools is None else tuple(map(copy_value, tools))

    @property
    def use_tool_role(self) -> bool:
        """False if calls and results are sent as texts, for models whose templates reject `role: tool`."""
        return self.renderer.use_tool_role

    @use_tool_role.setter
    def use_tool_role(self, use: bool) -> None:
        self.renderer.use_tool_role = use

    def use_model(
        self,
        model: ModelLike,
        *,
        token_budget: int | EllipsisType | None = ...,
        window: int | None = None,
        reserved_output: int | None = None,
        tokenizer: Tokenizer | None = None,
        factor: Factor = NEUTRAL,
    ) -> None:
        """Changes the model: the history is counted again and fitted again.

        The budget stays the same, unless `token_budget` is given.
        """
        budget = self._token_budget if token_budget is ... else token_budget
        self.renderer.bounds = replace(
            self.bounds,
            target=target_of(model),
            token_budget=budget,
            window=window,
            reserved_output=reserved_output,
            tokenizer=tokenizer,
            factor=factor,
        )
        self._token_budget = budget
        self.renderer.recalibrate(factor)

    def use_tokenizer(self, tokenizer: Tokenizer, factor: Factor = NEUTRAL) -> None:
        """Changes the tokenizer: the history is counted again and fitted again."""
        self.renderer.bounds = replace(self.bounds, tokenizer=tokenizer, factor=factor)
        self.renderer.recalibrate(factor)

    def use_tools(self, tools: Iterable[Any] | None) -> None:
        """Sets the tools that are sent from now on; their schemas are counted."""
        self.renderer.bounds = replace(self.bounds, tools=read_tools(tools))

    @contextmanager
    def temporary_limits(self) -> Iterator[None]:
        """Undoes, at the end of the block, all changes of the model, the tools and the limit.

        Turns that only another model's window has no room for are not summarized.
        """
        budget = self._token_budget
        with self.renderer.temporary_limits():
            try:
                yield
            finally:
                self._token_budget = budget

    def lower_limit(self, limit: int) -> None:
        """Lowers the limit from now on, as after a provider's refusal; a higher limit changes nothing."""
        if whole_number(limit, "limit", None) < self.limit:
            self.renderer.bounds = replace(self.bounds, token_budget=max(1, limit))

    def set_trimming(self, on: bool) -> None:
        """Turns trimming on or off. If it is off, a request that does not fit is an error."""
        self.renderer.bounds = replace(self.bounds, rolling=on)

    def recalibrate(self, factor: Factor, *, at_once: bool = False) -> None:
        """Sets the calibration factor: from the next trim on, or at once after an overflow error."""
        self.renderer.recalibrate(factor, at_once=at_once)

    def count_text(self, text: str) -> Cost:
        """Returns the tokens of a text by the rules of the current model, without framing."""
        return self.bounds.counter().text(check_text(text, "text"))

    # Requests ---------------------------------------------------------------------------------------

    def to_messages(
        self, *, system_prompt_override: str | None = None, compress: Compress | None = None
    ) -> list[Message]:
        """Returns the messages to send now; raises ContextOverflowError if the mandatory ones do not fit."""
        fitted = self.fitted(system_prompt_override=system_prompt_override, compress=compress)
        return [copy_value(message) for message in fitted.messages]  # copies, which the caller may change

    def fitted(
        self,
        *,
        system_prompt_override: str | None = None,
        compress: Compress | None = None,
        limit: int | None = None,
    ) -> Fitted[Any]:
        """Returns the messages to send now, with their count and the changes that made them fit.

        A lower `limit` applies to this request only; the history is read again for it.
        """
        most = None if limit is None else whole_number(limit, "limit", 1)
        short = None if compress is None else check_form(compress)
        return self.renderer.render(system_prompt_override, short, most)

    def history(self, system_prompt_override: str | None = None) -> list[Message]:
        """Returns all messages, untrimmed."""
        return self.record.history(system_prompt_override)

    @property
    def rendered(self) -> Fitted[Any] | None:
        """The last rendered request; None before the first."""
        return self.renderer.rendered

    @property
    def changes(self) -> tuple[Change, ...]:
        """One change for each turn that the last request left out or altered, in order."""
        return self.renderer.changes

    def pop_changes(self) -> Mapping[str, int]:
        """Returns the number of changes since the last call, by kind; each counts once for each model.

        The changes of a short form are only in `changes`.
        """
        return self.renderer.evictions.pop_changes()

    def enforce_budget(self) -> list[Message]:
        """Returns the turns evicted since the last call; raises ContextOverflowError like `fitted`."""
        self.fitted()
        return self.renderer.evictions.pop_turns()

    def count(self, *, system_prompt_override: str | None = None, compress: Compress | None = None) -> Count:
        """Returns the count of a request now, before any trim."""
        short = None if compress is None else check_form(compress)
        return self.renderer.count(system_prompt_override, short)

    def estimate_tokens(self) -> int:
        """Returns the estimate in tokens of a request now, before any trim."""
        return self.count().tokens

    def forecast(self) -> list[Message]:
        """Returns the messages that the next trim will probably evict."""
        return self.renderer.forecast()

    async def prepare(self, *, system_prompt_override: str | None = None) -> None:
        """Waits for the counts of a remote tokenizer and for the summary, which rendering needs.

        Rendering itself never waits.
        """
        tokenizer = self.bounds.tokenizer
        if isinstance(tokenizer, RemoteTokenizer):
            await self.renderer.learn(tokenizer, system_prompt_override)
        await self.renderer.await_summary()

    async def learn(
        self,
        tokenizer: RemoteTokenizer,
        *,
        system_prompt_override: str | None = None,
        compress: Compress | None = None,
    ) -> None:
        """Lets a remote tokenizer count the texts of the conversation that it has not counted yet."""
        await self.renderer.learn(tokenizer, system_prompt_override, compress)

    def answer_recall(self, arguments: Mapping[str, Any]) -> str:
        """Returns the recall tool's answer: evicted texts, in a share of the window."""
        changed = {change.index for change in self.changes}
        viewed = [turn for place, turn in enumerate(self.turns) if place not in changed]
        measure = self.bounds.counter().text
        return answer_recall(
            self.journal,
            self.session,
            arguments,
            room=min(MOST_TOKENS, self.bounds.policy.max_tokens_per_output, self.limit // WINDOW_SHARE),
            measure=lambda text: measure(text).ceiling,
            without={letters_of(piece_of(turn)) for turn in viewed},
        )

    def recounted(self, fitted: Fitted[Any]) -> Fitted[Any]:
        """Returns a request with a new count, after the tokenizer has learned texts that rendering made.

        If the request is now over the limit, the next render reads the history again.
        """
        return self.renderer.recount_request(fitted)

    # Usage ------------------------------------------------------------------------------------------

    def add_usage(self, *arguments: Any, **options: Any) -> tuple[Crossed, ...]:
        """Adds the usage of a request to the meter; returns the warnings that it is the first to cause."""
        return self.meter.add_usage(*arguments, **options)

    def total_cost(self) -> Decimal | None:
        """Returns the sum of the known costs in dollars; None if no cost is known."""
        return self.meter.total_cost()

    def total_tokens(self) -> tuple[int, int]:
        """Returns all prompt tokens, and all completion tokens."""
        return self.meter.total_tokens()

    def reset_usage(self) -> None:
        """Clears the meter and enables its warnings again."""
        self.meter.reset()
