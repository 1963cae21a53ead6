"""Asks the model a question, handles the commands of its answer, and lets it go on with their results.

    question, with files and piped input → answer → its commands run or are skipped
        → if one ran, the model gets the results and answers again → …

The number of these follow-ups is bounded by `shell.follow_up`. Ctrl-C or an empty line stops them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ullage.fitting.pieces import HANDLE_LENGTH, letters_of
from ullage.messages import text_of
from ullage.patience import patiently
from ullage.session.continuations import CONTINUATIONS, FOLLOW_UP
from ullage.shell.answer import AnswerProgress
from ullage.shell.attachments import attach_text, read_attachments
from ullage.shell.detached import run_detached
from ullage.shell.directives import commands_in
from ullage.shell.editor import read_typed_line
from ullage.shell.offers import handle_offers
from ullage.text import fence_output, one_line, split_outputs
from ullage.window_chart import short

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ullage.context import Context
    from ullage.shell.attachments import Attachment
    from ullage.shell.workplace import Workplace

PIPED = "piped input"
UNANSWERED = "the question is kept: :retry asks it again, :undo takes it back"
INCOMPLETE = "the part that arrived is kept: :retry asks again and replaces it"
MOST_QUOTED = 2
"""The most unanswered questions that a notice quotes, the newest ones."""
QUOTED = 40
"""Characters of an unanswered question that a notice quotes."""


async def ask(workplace: Workplace, text: str, piped: str = "") -> None:
    """Asks a question with its files and piped input, and goes on with the commands of the answer."""
    routed = workplace.chat.route(text)
    if routed.hint:
        workplace.screen.dim(routed.hint)
    question, files = await run_detached(partial(read_attachments, routed.question, workplace.runner.cwd))
    if piped.strip():
        files.append(attach_text(PIPED, piped))
    workplace.category = routed.category
    await _converse(workplace, partial(_put, workplace, question, files))


async def retry(workplace: Workplace) -> None:
    """Asks the last question again; an answer that it had is taken back first."""
    context = workplace.chat.context
    if not context.turns:
        workplace.screen.dim("there is no question to ask again")
        return
    if context.turns[-1]["role"] == "user":
        await _converse(workplace, _nothing)
        return
    gone = await patiently(context.undo)
    words = [_own_words(turn) for turn in gone if turn["role"] == "user"]
    await _converse(workplace, partial(_append, workplace, "\n\n".join(filter(None, words))))


def find_unanswered(context: Context) -> Sequence[str]:
    """Returns the questions at the end of a conversation that have no answer, in order."""
    words: list[str] = []
    for turn in reversed(context.turns):
        if turn["role"] != "user":
            break
        words.append(_own_words(turn))
    return [each for each in reversed(words) if each and each not in CONTINUATIONS]


def _own_words(turn: object) -> str:
    content = turn.get("content") if isinstance(turn, dict) else None
    return split_outputs(text_of(content))[1].strip()


async def _converse(workplace: Workplace, put: Callable[[], Awaitable[None]]) -> None:
    """Gets an answer, handles its commands, and lets the model go on with their results."""
    most, rounds = workplace.chat.settings.shell.follow_up, 0
    answer = await _answer_turn(workplace, put)
    while commands := commands_in(answer.text):
        outcome = await handle_offers(workplace, commands)
        if not outcome.ran or not most:
            return
        if outcome.stopped or _has_typed(workplace):
            workplace.screen.dim("stopped; the results are sent with your next question")
            return
        if rounds == most:
            times = "1 follow-up" if most == 1 else f"{most:,} follow-ups"
            workplace.screen.dim(f"stopped after {times} (shell.follow_up); ask to go on")
            return
        rounds += 1
        workplace.screen.notice("the model goes on with the results; Ctrl-C stops it")
        answer = await _answer_turn(workplace, partial(_append, workplace, FOLLOW_UP))
        if commands_in(answer.text) and _has_typed(workplace):
            workplace.screen.dim("stopped; the suggested commands are not run")
            return


async def _answer_turn(workplace: Workplace, put: Callable[[], Awaitable[None]]) -> AnswerProgress:
    """Appends the next user turn with `put`, and returns the answer of the model of the category."""
    answer = AnswerProgress()
    workplace.tools.send()  # leaves out the tools of servers that have ended
    async with workplace.routed(workplace.category):
        await put()
        await workplace.stream(answer, category=workplace.category)
    workplace.tools.tell_ended()
    return answer


async def _nothing() -> None:
    """Appends nothing: the last turn is asked again."""


async def _append(workplace: Workplace, text: str) -> None:
    await patiently(partial(workplace.chat.context.append_user, text))


async def _put(workplace: Workplace, question: str, files: Sequence[Attachment]) -> None:
    """Appends a question with its files; the same question without an answer is not appended twice."""
    context = workplace.chat.context
    before = find_unanswered(context)
    is_again = bool(before) and before[-1] == question.strip()
    await _attach(workplace, files, is_again=is_again)
    if is_again:
        workplace.screen.dim("this question is waiting for an answer already: it is sent once")
        if context.printed_tokens:
            await _append(workplace, "")
        return
    if before:
        quoted = ", ".join(f"“{short(one_line(each), QUOTED)}”" for each in before[-MOST_QUOTED:])
        quoted = f"…, {quoted}" if len(before) > MOST_QUOTED else quoted
        questions = "1 unanswered question" if len(before) == 1 else f"{len(before)} unanswered questions"
        workplace.screen.dim(f"sent together with {questions}: {quoted}; :undo takes all of it back")
    await _append(workplace, question)


async def _attach(workplace: Workplace, files: Sequence[Attachment], *, is_again: bool) -> None:
    """Puts files in front of the next question, and prints their sizes in tokens."""
    context, sizes = workplace.chat.context, []
    last = text_of(context.turns[-1].get("content")) if is_again else ""
    before, total = context.printed_tokens, 0
    for file in files:
        text = workplace.mask(file.text)
        if is_again and (fence_output(text) in last or letters_of(text)[:HANDLE_LENGTH] in last):
            continue
        tokens = context.count_text(text).tokens
        total += tokens
        left_out = f" ({file.left_out:,} not sent: no text, or too large)" if file.left_out else ""
        sizes.append(f"{one_line(file.name)} ~{tokens:,} tokens{left_out}")
        await patiently(partial(context.append_exec_output, text))
    if sizes:
        sent = context.printed_tokens - before
        cut = f"; cut to ~{sent:,} tokens to fit, :recall finds the rest" if sent < total else ""
        workplace.screen.notice(f"sent with the question: {', '.join(sizes)}{cut}")


def _has_typed(workplace: Workplace) -> bool:
    """Returns True if the user has typed a line meanwhile; an empty one is used up, any other runs next."""
    waiting = workplace.input.lines
    line = read_typed_line(workplace.screen)
    if line is not None:
        waiting.append(line)
    if not waiting:
        return False
    if not waiting[0].strip():
        waiting.popleft()
    return True
