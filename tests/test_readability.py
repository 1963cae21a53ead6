"""The digest reads well: values keep their names, words are whole, nothing is a heap, talk informs."""

from __future__ import annotations

import json
import random
import re
import time

import pytest

import ullage
from ullage.fitting.block import read_block, write_lines
from ullage.fitting.digest import EMPTY, MOST_ALIKE, SHAPES, Taken, absorb, parse, write
from ullage.fitting.facts import ROWS, Kind, find
from ullage.fitting.outputs import ERROR_WORDS, find_lines, pairs, words
from ullage.fitting.shorten import cut_middle
from ullage.fitting.talk import LEAST, information, is_standing, read_speech, sentences
from ullage.messages import split_digest
from ullage.text import DIGEST_CLOSE, DIGEST_OPEN

SUBJECTS = ["worker", "queue", "shard", "cache", "socket", "ledger", "parser", "branch", "index", "batch"]


def tokens(text: str) -> int:
    return ullage.count([{"role": "user", "content": text}], "gpt-4o").tokens


def noise(seed: int, lines: int) -> list[str]:
    """Lines of a log: a moment, a level, hashes, durations and prose."""
    dice = random.Random(seed)  # noqa: S311 - a log, not a secret
    made = []
    for _ in range(lines):
        moment = f"2026-03-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:{dice.randint(0, 59):02}:07Z"
        subjects = " ".join(dice.choices(SUBJECTS, k=dice.randint(2, 6)))
        made.append(
            f"{moment} INFO pid={dice.randint(1000, 9999)} {subjects} {dice.getrandbits(40):010x}"
            f" took {dice.randint(1, 999)}ms /srv/app/releases/current/{dice.choice(SUBJECTS)}.py"
        )
    return made


def session(seed: int, fact: str) -> list[dict[str, object]]:
    """A session of logs with one fact in one of them."""
    dice = random.Random(seed)  # noqa: S311 - a log, not a secret
    messages: list[dict[str, object]] = [{"role": "user", "content": "Watch the deployment."}]
    hidden = dice.randrange(6)
    for number in range(12):
        log = noise(seed * 100 + number, dice.randint(20, 60))
        if number == hidden:
            log.insert(dice.randrange(len(log)), fact)
        call = {"id": f"c{number}", "type": "function", "function": {"name": "tail", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "\n".join(log)},
        ]
    return [
        *messages,
        {"role": "assistant", "content": "All quiet."},
        {"role": "user", "content": "And now?"},
    ]


def digest_of(messages: list[dict[str, object]], limit: int) -> str:
    fitted = ullage.fit(messages, "gpt-4o", limit=limit)
    return split_digest(str(fitted.messages[0]["content"]))[1]


def test_one_value_with_a_name_outlives_the_noise_around_it() -> None:
    kept = 0
    for seed in range(100):
        fact = f"deploy_token=QX-{4000 + seed}-ZULU"
        kept += fact in digest_of(session(seed, fact), 3_000)
    assert kept >= 95


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("region=eu", "region=eu"),
        ("release: 2026.4.1", "release=2026.4.1"),
        ('{"ticket": "OPS-1881", "open', "ticket=OPS-1881"),
        ("export API_URL=https://api.example.org/v2", "API_URL=https://api.example.org/v2"),
    ],
)
def test_a_value_in_plain_text_keeps_its_name(line: str, shown: str) -> None:
    log = noise(7, 30)
    log.insert(15, line)
    taken = Taken("tool", "\n".join(log), 1, call=("tail", "{}"))
    assert shown in write(absorb(EMPTY, [taken]), 300, tokens)[0]


@pytest.mark.parametrize("seed", range(20))
def test_every_word_of_the_digest_is_a_whole_word_of_the_source(seed: int) -> None:
    messages = session(seed, f"deploy_token=QX-{seed}-ZULU")
    source = set(re.findall(r"\w+", "\n".join(f"{message}\n{message['content']}" for message in messages)))
    ours = {"paths", "files", "names", "addresses", "user", "assistant"}
    block = digest_of(messages, 2_500)
    quoted = "\n".join(line for line in block.split("\n") if line.startswith("> "))
    assert quoted
    assert set(re.findall(r"\w+", quoted)) <= source | ours


@pytest.mark.parametrize("seed", range(20))
def test_no_more_than_three_values_without_a_name_stand_in_a_row(seed: int) -> None:
    for line in digest_of(session(seed, "x=1"), 2_500).split("\n"):
        row = 0
        for item in line.partition(": ")[2].split(" · "):
            row = row + 1 if "=" not in item and " " not in item else 0
            assert row <= 3


def test_moments_are_not_kept_and_shapes_that_repeat_only_a_few_times() -> None:
    block = digest_of(session(3, "x=1"), 3_000)
    assert "T0" not in block
    assert len(re.findall(r"\b\d+ms\b", block)) <= 3 * 12
    assert all(len(words("\n".join(noise(seed, 50)))) <= 16 for seed in range(5))


def test_a_folder_is_written_once_for_the_paths_in_it() -> None:
    listing = "\n".join(f"/srv/app/releases/current/{name}.py" for name in SUBJECTS)
    block, _ = write(absorb(EMPTY, [Taken("tool", listing, 1, call=("find", "{}"))]), 300, tokens)
    assert block.count("/srv/app/releases/current/") <= 2
    assert "/srv/app/releases/current/{worker.py, queue.py, shard.py" in block


def test_two_sentences_without_a_space_between_them_are_no_name() -> None:
    text = "I ran the script.I think it works here.Let me look at src/cask.py and models.Model again."
    assert words(text) == ["src/cask.py", "models.Model"]


def test_letters_of_another_alphabet_do_not_cut_a_word() -> None:
    assert words("naïve_parser_7 and größe_42 and parser_7") == ["parser_7"]


def test_a_text_is_cut_between_its_words() -> None:
    text = " ".join(f"word{number:05}" for number in range(2_000))
    kept = cut_middle(text, 200, tokens(text), tokens)
    assert set(re.findall(r"word\w+", kept)) <= set(text.split())


def test_what_a_tool_found_and_the_assistant_told_stays_beside_what_was_asked() -> None:
    call = ("calculate", '{"expression": "3 * 412.50 + 48"}')
    messages = [
        Taken("assistant", "", 1, calls=(call,)),
        Taken("tool", "1285.5", 2, call=call),
        Taken("assistant", "The total for three cabins is $1,285.50.", 3),
    ]
    block, _ = write(absorb(EMPTY, messages), 120, tokens)
    assert "> calculate(expression=3 * 412.50 + 48): 1285.5" in block
    assert "> assistant: The total for three cabins is $1,285.50." in block


@pytest.mark.parametrize(
    "sentence",
    [
        "Thanks, Mel!",
        "Wow, that is so great to hear, Caroline!",
        "How are you?",
        "Sounds good, see you soon!",
        "好的，谢谢您！",
        "嗯嗯，太好了，真的谢谢你了。",
        "不客气，再见！",
    ],
)
def test_courtesies_tell_nothing(sentence: str) -> None:
    assert information(sentence) < LEAST


@pytest.mark.parametrize(
    "sentence",
    [
        "Ingrid gave us a brass compass.",
        "I passed the adoption agency interviews last Friday!",
        "The code is 4711.",
        "我们最后选了北京饭店，住三晚。",
    ],
)
def test_sentences_with_something_in_them_tell(sentence: str) -> None:
    assert information(sentence) >= LEAST


def test_talk_is_labelled_with_who_said_it_and_when() -> None:
    messages = [
        Taken(
            "user", "[1:50 pm on 17 August, 2023] Caroline: Hey Mel! I adopted a guinea pig called Oscar.", 1
        ),
        Taken("assistant", "Melanie: Wow! I bought two wooden figurines at the harbour market.", 2),
    ]
    block, _ = write(absorb(EMPTY, messages), 200, tokens)
    assert "> user Caroline, 17 August, 2023: I adopted a guinea pig called Oscar." in block
    assert "> assistant Melanie: I bought two wooden figurines at the harbour market." in block
    assert "Hey" not in block


def test_what_was_said_twice_is_told_once() -> None:
    said = ["The blue boat leaves the harbour on Monday.", "Yes: on Monday the blue boat leaves the harbour."]
    block, _ = write(absorb(EMPTY, [Taken("user", text, at) for at, text in enumerate(said)]), 200, tokens)
    assert block.count("harbour") == 1


def test_chinese_talk_leaves_the_hotel_that_was_chosen() -> None:
    talk = []
    for day in range(30):
        talk.append({"role": "user", "content": "好的，谢谢您！请问还有别的吗？"})
        talk.append({"role": "assistant", "content": f"不客气！第{day}个景点也很受欢迎。"})
    talk[6] = {"role": "user", "content": "那我们就订王府井希尔顿酒店，住三晚。"}
    talk.append({"role": "user", "content": "好的，再见！"})
    policy = ullage.FitPolicy(recall_share=0)
    fitted = ullage.fit(talk, "gpt-4o", limit=350, policy=policy)
    block = split_digest(fitted.messages[0]["content"])[1]
    assert "王府井希尔顿酒店" in block
    assert "不客气" not in block


def test_a_placeholder_can_name_the_tool_and_its_argument() -> None:
    log = "\n".join(noise(1, 30))
    messages = [{"role": "user", "content": "Read them."}]
    for number in range(9):
        arguments = f'{{"path": "logs/day-{number}.log"}}'
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": log},
        ]
    template = "[{tool}({argument}) was {tokens} tokens, {age} steps ago]"
    fitted = ullage.fit(messages, "gpt-4o", limit=8_000, policy=ullage.FitPolicy(placeholder=template))
    contents = [message["content"] for message in fitted.messages if message["role"] == "tool"]
    assert any(str(text).startswith("[read(path=logs/day-0.log) was ") for text in contents)
    assert ullage.FitPolicy().placeholder == "[content truncated - {age} steps ago, {tokens} tokens]"


RECORDS = [
    {"id": f"PILOT-{number}", "phone": f"+687 2{number}.11.11", "seen": f"2024-05-0{number}T14:58:17"}
    for number in range(1, 7)
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS)[:-20],
        json.dumps({"error": "", "response": json.dumps(RECORDS)}),
        json.dumps({"error": "", "response": json.dumps(RECORDS)})[:-40],
    ],
    ids=["whole", "cut short", "inside a string", "inside a string and cut short"],
)
def test_json_keeps_the_names_of_its_fields_even_if_it_is_cut_short(text: str) -> None:
    found = {(name, value) for _, _, name, value in find(Taken("tool", text, 1))}
    assert ("phone", "+687 23.11.11") in found
    assert ("id", "PILOT-5") in found


def test_a_field_with_a_date_and_a_time_of_day_keeps_the_date() -> None:
    found = [(name, value) for _, _, name, value in find(Taken("tool", json.dumps(RECORDS[:1]), 1))]
    assert ("seen", "2024-05-01") in found


def test_a_line_of_a_log_names_no_speaker() -> None:
    pasted = "The build prints this:\nModels: large and small in one run\nImportError: no module named casket"
    assert {line for _, line, _, _ in find(Taken("user", pasted, 1))} == {"user"}
    reported = find(Taken("user", "SyntaxError: the bracket of line 40 is open", 1))
    assert [(line, value) for _, line, _, value in reported] == [
        ("user", "SyntaxError: the bracket of line 40 is open")
    ]


def test_a_name_that_is_its_own_value_is_left_out() -> None:
    listing = "\n".join(["form = Form(prefix=self.prefix, retries=retries, depth=4)"] * 2 + ["x" * 200])
    assert ("depth", "4") in pairs(listing)
    assert {name for name, _ in pairs(listing)} == {"depth"}


@pytest.mark.parametrize(
    "line", ["required_elements = [", "self.measured_data,", "</open_files>", "widths = {"]
)
def test_a_piece_of_code_is_no_sentence(line: str) -> None:
    assert line not in [value for _, _, _, value in find(Taken("assistant", f"I changed it.\n{line}", 1))]


def test_an_answer_of_one_word_is_kept() -> None:
    assert "omar_davis_3817" in [value for _, _, _, value in find(Taken("user", "omar_davis_3817", 1))]


def test_a_word_that_a_kept_sentence_has_is_not_listed_again() -> None:
    messages = [Taken("assistant", "Let me edit 287:295 of the parser now.", 1)]
    block, _ = write(absorb(EMPTY, messages), 400, tokens)
    assert block.count("287:295") == 1


@pytest.mark.parametrize("text", [str(RECORDS[0]), str(RECORDS), json.dumps([str(RECORDS[0])])])
def test_a_dict_as_python_prints_it_keeps_the_names_of_its_fields(text: str) -> None:
    found = {(name, value) for _, _, name, value in find(Taken("tool", text, 1))}
    assert {(name, str(value)) for name, value in RECORDS[0].items() if name.endswith("id")} <= found


@pytest.mark.parametrize(
    "text", ["{'a': 1" + "[" * 5_000, "['\\d', 1]", "{'a': " * 300 + "}" * 300, "['a', b]"]
)
def test_a_text_that_only_begins_like_a_dict_is_read_as_plain_text(text: str) -> None:
    assert all(value for _, _, _, value in find(Taken("tool", text, 1)))


def test_a_listing_of_many_rows_leaves_its_first_rows() -> None:
    rows = json.dumps([{"flight": f"HAT{number:03}"} for number in range(60)])
    found = [value for _, _, _, value in find(Taken("tool", rows, 1))]
    assert found == [f"HAT{number:03}" for number in range(ROWS)]


def test_a_line_between_lines_of_json_keeps_its_value() -> None:
    dice = random.Random(7)  # noqa: S311 - a log, not a secret
    log = [json.dumps({"trace_id": f"{dice.getrandbits(64):016x}", "ms": number}) for number in range(90)]
    log.insert(70, "deploy_token=QX-4417-ZULU")
    found = [(name, value) for _, _, name, value in find(Taken("tool", "\n".join(log), 1))]
    assert ("deploy_token", "QX-4417-ZULU") in found


@pytest.mark.parametrize("form", ["2009-10-{:02}(日本)", "2024-05-{:02}", "{}125ms", "{:03}c02879b4ecba3"])
def test_the_dates_and_hashes_of_a_listing_leave_room_for_its_names(form: str) -> None:
    rows = [{"seen": form.format(number), "title": f"Boat {'abcdefghi'[number]}"} for number in range(9)]
    found = find(Taken("tool", json.dumps(rows), 1))
    kinds = [kind for kind, _, name, _ in found if name == "seen"]
    assert kinds[:3] == [Kind.IDENTIFIER] * 3
    assert set(kinds[3:]) == {Kind.DETAIL}


def test_a_line_of_code_reports_no_error() -> None:
    code = "} catch (error) {\n  throw new CaskError(`the cask leaks`, {\n"
    text = "x = 1\n" * 40 + code + "CaskError: cask 7 leaks\n"
    errors = [value for kind, _, _, value in find(Taken("tool", text, 1)) if kind is Kind.ERROR]
    assert errors == ["CaskError: cask 7 leaks"]


def test_what_stands_between_two_marked_words_is_not_marked() -> None:
    found = [
        value for _, _, _, value in find(Taken("assistant", "Use 5` of it. If `cask_7` leaks, stop.", 1))
    ]
    assert "of it. If" not in found
    assert "cask_7" in found


def test_a_plain_word_that_is_marked_stays_in_its_sentence() -> None:
    said = "The `match` of a **boat** calls `find_cask` in `casks` behind `return`."
    found = find(Taken("assistant", said, 1))
    assert [value for _, _, _, value in found] == [said, "find_cask", "find_cask"]


def test_tags_are_no_paths() -> None:
    page = '<!DOCTYPE html PUBLIC "-//W3C//DTD">\n<title>Boats</title>\n<a href="/boats/list.pl"></a>'
    assert words(f"{page}\nwc </etc/hosts") == ["/boats/list.pl", "/etc/hosts"]


def test_sizes_and_durations_without_a_name_are_left_out() -> None:
    text = "built in 119ms, 12.5s in all, 106625 bytes, 64MB, order 98421733 " + "and so on " * 30
    assert [value for _, _, _, value in find(Taken("tool", text, 1))] == ["98421733"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("src/cask/fold.ts:import", "src/cask/fold.ts"),
        ("src/cask/fold.py:12", "src/cask/fold.py:12"),
        ("tests/test_a.py::test_b", "tests/test_a.py::test_b"),
        (".toLowerCase", None),
        (".gitignore_global", ".gitignore_global"),
    ],
)
def test_the_output_of_a_search_leaves_whole_names(text: str, kept: str | None) -> None:
    assert words(text) == ([kept] if kept else [])


def test_marks_of_headings_and_lists_are_no_part_of_a_sentence() -> None:
    text = "#### 1. **Agent events** are handled twice.\n- The second item.\n2. Go on there."
    assert sentences(text) == ["**Agent events** are handled twice.", "The second item.", "Go on there."]


def test_a_speaker_is_known_by_the_name_before_two_blanks() -> None:
    assert read_speech("James:  The dog is called Ned since March.")[0].speaker == "James"


def filler(count: int) -> list[dict[str, str]]:
    """Small talk of which each turn has something to tell."""
    dice = random.Random(count)  # noqa: S311 - talk, not a secret
    talk = []
    for _ in range(count):
        talk.append(
            {"role": "user", "content": f"The {dice.choice(SUBJECTS)} of Larkham has number {dice.random()}."}
        )
        talk.append(
            {
                "role": "assistant",
                "content": f"Larkham keeps each {dice.choice(SUBJECTS)} beside a river mill.",
            }
        )
    return talk


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I am allergic to hazelnuts.", "hazelnuts"),
        ("My son can't have dairy.", "dairy"),
        ("Please remember that deploy_token=QX-4417-ZULU.", "QX-4417-ZULU"),
        ("Ich bin gegen Haselnüsse allergisch.", "Haselnüsse"),
        ("Soy alérgica al marisco.", "marisco"),
        ("Je préfère le train de nuit.", "train de nuit"),
        ("У меня аллергия на мёд.", "мёд"),
        ("عندي حساسية من السمسم.", "السمسم"),
        ("我对花生过敏，请记住。", "花生"),
        ("私は卵アレルギーがあります。", "卵"),
    ],
)
def test_what_holds_until_the_end_outlives_two_hundred_turns(said: str, kept: str) -> None:
    talk = [
        {"role": "user", "content": "Hello there"},
        {"role": "assistant", "content": "Hello, how can I help?"},
        {"role": "user", "content": said},
        {"role": "assistant", "content": "Noted."},
        *filler(100),
        {"role": "user", "content": "What shall we do on Sunday?"},
    ]
    fitted = ullage.fit(talk, "gpt-4o", limit=500, policy=ullage.FitPolicy(recall_share=0))
    assert kept in split_digest(fitted.messages[0]["content"])[1]


def test_a_question_about_an_allergy_does_not_hold_until_the_end() -> None:
    assert is_standing("I am allergic to nuts.")
    assert not is_standing("Are you allergic to nuts?")


def test_lines_that_differ_only_in_their_numbers_are_quoted_a_few_times() -> None:
    said = [
        Taken("user", f"The nightly import number {number} of the harbour ended.", number)
        for number in range(40)
    ]
    block, _ = write(absorb(EMPTY, said), 2_000, tokens, steady=False)
    assert block.count("nightly import") == SHAPES


def test_results_of_different_calls_are_all_kept_though_they_are_numbers() -> None:
    calls = [("calculate", json.dumps({"expression": f"{at} * 412.50"})) for at in range(8)]
    taken = [Taken("tool", f"{412.5 * at} EUR", at, call=call) for at, call in enumerate(calls)]
    block, _ = write(absorb(EMPTY, taken), 2_000, tokens, steady=False)
    assert block.count(" EUR") == len(calls)


def test_a_long_list_of_bare_numbers_is_cut() -> None:
    calls = [
        Taken("assistant", "", at, calls=(("read", json.dumps({"path": "src/cask.py", "offset": 11 * at})),))
        for at in range(1, 60)
    ]
    block, _ = write(absorb(EMPTY, calls), 2_000, tokens, steady=False)
    numbers = re.search(r"offset=([\d, ]+)", block)
    assert numbers is not None
    assert numbers[1].count(",") < MOST_ALIKE[Kind.DETAIL]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Die Feier ist am 14. Juni im Anker. Komm bald!",
            ["Die Feier ist am 14. Juni im Anker.", "Komm bald!"],
        ),
        ("Ask Dr. Lee or J. Smith. They know.", ["Ask Dr. Lee or J. Smith.", "They know."]),
        ("मैं बीजिंग जाऊंगा। मौसम कैसा है?", ["मैं बीजिंग जाऊंगा।", "मौसम कैसा है?"]),
        ("هل لديكم غرفة؟ أريد غرفتين.", ["هل لديكم غرفة؟", "أريد غرفتين."]),
        ("It was I. Then she left.", ["It was I.", "Then she left."]),
    ],
)
def test_a_sentence_ends_at_its_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "Date: Wed, 5 Mar 2025 09:12:44 +0100",
        "chat started at 2024-05-21 15:46:38",
        "(91)",
        "drwxr-xr-x 2 root root 4096 Jul 17 01:31 .",
        "Here are the updated blocks for the harbour:",
        "Add, Abs, Chi, Ci, CosineTransform, Dict,",
    ],
)
def test_moments_rows_and_headings_are_no_statements(line: str) -> None:
    told = [each.sentence for each in read_speech(f"The mill of Larkham burned down.\n{line}")]
    assert told == ["The mill of Larkham burned down."]


def test_an_answer_with_a_date_is_kept() -> None:
    assert (
        read_speech("We meet on Wednesday, 5 March 2025.")[0].sentence
        == "We meet on Wednesday, 5 March 2025."
    )


def test_what_is_counted_at_the_head_of_a_text_is_no_speaker() -> None:
    assert read_speech("Tokens: 20,069 sent, 400 received.")[0].speaker == ""
    assert read_speech("Ada: The dog is called Ned.")[0].speaker == "Ada"


def test_code_in_a_fence_is_no_sentence_of_the_assistant() -> None:
    text = "I renamed the harbour module.\n```python\nresult = Harbour(setup=make_setup)\n```\nIt passes."
    said = [
        value
        for kind, _, _, value in find(Taken("assistant", text, 1))
        if kind in {Kind.REPORTED, Kind.STATED}
    ]
    assert "I renamed the harbour module." in said
    assert not any("Harbour(" in each for each in said)


@pytest.mark.parametrize("word", ["and/or", "True/False", "his/her", "s/old/new"])
def test_words_that_a_slash_separates_are_no_path(word: str) -> None:
    assert words(f"use {word} here, see src/cask/fold and docs/api") == ["src/cask/fold", "docs/api"]


def test_an_escaped_mark_of_an_address_is_no_part_of_a_word() -> None:
    assert words("see https://a.example/w/300%2C171700%2C1400 now") == ["https://a.example/w/300"]


def test_a_common_word_before_a_colon_is_no_name() -> None:
    assert pairs("Reset at: 262a505 and commit: e229b73 of it") == [("commit", "e229b73")]


def test_paths_below_one_folder_share_it() -> None:
    folder = "/srv/code/larkham/packages/agent"
    paths = [f"{folder}/src/core/index.ts", f"{folder}/docs/refactor.md", f"{folder}/test/a/b.test.ts"]
    lines = list(write_lines("edit()", [("path", each) for each in paths]))
    assert len(lines) == 1
    assert lines[0].count(folder) == 1
    assert [value for _, items in read_block(f"> {lines[0]}")[1] for _, value in items] == paths


@pytest.mark.parametrize("seed", range(20))
def test_a_list_of_any_values_is_read_as_it_was_written(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - names, not secrets
    folders = ["/srv/code/larkham/packages", "/srv/code/larkham/packages/agent", "src", "/srv/code/other"]
    values = list(
        dict.fromkeys(
            f"{dice.choice(folders)}/{dice.choice(SUBJECTS)}.{dice.choice(['py', 'ts'])}" for _ in range(9)
        )
    )
    text = "\n".join(f"> {line}" for line in write_lines("f()", [("path", each) for each in values]))
    assert [value for _, items in read_block(text)[1] for _, value in items] == values


def test_a_block_of_long_foreign_lines_is_read_in_little_time() -> None:
    long = "a" * 20_000
    block = f"{DIGEST_OPEN}\n> f(): a={long} b, {long} c\n{DIGEST_CLOSE}"
    before = time.process_time()
    parse(block)
    assert time.process_time() - before < 2


def written(messages: list[Taken], room: int = 400) -> str:
    return write(absorb(EMPTY, messages), room, tokens)[0]


def run(at: int, command: str, printed: str) -> list[Taken]:
    arguments = json.dumps({"command": command})
    return [
        Taken("assistant", "", at, calls=(("bash", arguments),)),
        Taken("tool", printed, at + 1, call=("bash", arguments)),
    ]


def test_a_result_stands_behind_its_command() -> None:
    first = "hostname && find /testbed -type f -name '*.txt' -size +10k -exec du -sh {} +"
    second = "grep -rn --include='*.toml' 'requires-python' /testbed/packages | sort | uniq -c"
    block = written(
        [*run(0, first, "host 750f73ff0550 has 4 files"), *run(2, second, "12 files ask for 3.11")]
    )
    places = [block.index(text) for text in (first, "750f73ff0550", second, "12 files")]
    assert places == sorted(places)


def test_commands_that_differ_only_in_their_numbers_leave_room_for_what_was_told() -> None:
    told = "In total we lost $385,443.60 across all regions, and south gained $17,409.90."
    messages = [Taken("assistant", told, 0)]
    for at in range(1, 24, 2):
        messages += run(at, f"print(df[df.cohort=={at}].describe())", "")
    block = written(messages, 120)
    assert told in block
    assert block.count("describe()") <= 3


def test_a_long_list_of_ids_leaves_room_for_what_was_told() -> None:
    told = "The cheapest with breakfast is LIS-4471: 212.40 EUR for 3 nights."
    messages = [Taken("assistant", told, 0)]
    for page in range(1, 6):
        rows = [{"hotel_id": f"LIS-{page}{row:03d}", "rating": row} for row in range(12)]
        messages.append(Taken("tool", json.dumps(rows), page, call=("search_hotels", '{"city": "Lisbon"}')))
    block = written(messages, 300)
    assert told in block
    assert 3 < block.count("LIS-") <= MOST_ALIKE[Kind.KEY] + 1


def test_a_value_that_its_label_shows_is_not_written_again() -> None:
    title = {"title": "Weather Patterns: A Summary"}
    block = written(
        [Taken("tool", json.dumps({"id": "doc-1777", **title}), 0, call=("create", json.dumps(title)))]
    )
    assert block.count("Weather Patterns") == 1
    assert "id=doc-1777" in block


@pytest.mark.parametrize(
    "line", ["-rw-r--r-- 1 root root 6744 Apr 30 08:32 error.c", "src/lib/errors.py", "failed.log"]
)
def test_the_name_of_a_file_reports_no_error(line: str) -> None:
    assert find_lines(ERROR_WORDS, f"total 12\n{line}\nREADME.md") == []


def test_a_phrase_that_a_kept_sentence_has_is_not_listed_again() -> None:
    block = written(
        [Taken("assistant", "We keep **Interactive mode** and drop the RPC mode of version 2.", 0)]
    )
    assert block.count("Interactive mode") == 1


def test_a_field_with_code_behind_it_names_no_speaker() -> None:
    block = written([Taken("user", "File: `src/main.py` has the parser of version 3 in it.", 0)])
    assert "user File" not in block
    assert "src/main.py" in block
