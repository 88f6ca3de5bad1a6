"""A model's reply is parsed into one move: strictly, and the same however the text is split."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.llm import model_replies
from tools.llm.model_answers import ModelToolCall
from tools.llm.model_replies import ModelAction, ModelReply, ModelReplyParser

LABELS = ["Thought:", "Action:", "Arguments:", "Answer:", "Observation:"]
SCRAPS = st.sampled_from(
    [
        *(f"{label} " for label in LABELS), *LABELS, "\n", "\r\n", " ", "add", "wipe", "{}", "{",
        "}", '{"a": 1}', '{"a": "\nAnswer: x"}', '"', "\\", "```json\n", "```", "Actio", "ü€𝄞",
        "NaN", 'Action: add\nArguments: {"a": 1}', "\nAction: wipe\n", "Arguments: {}\n",
        "Answer: 2",
    ]
)  # fmt: skip
TEXTS = st.lists(SCRAPS | st.text(max_size=5), max_size=25).map("".join)


def read(*pieces, tell=lambda _: None):
    reader = ModelReplyParser(tell)
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


def outcome(text):
    move = read(text)
    return move.action or move.answer or move.flaw


def test_an_action_with_its_thought():
    text = 'Thought: I add.\nThen I see.\nAction: add\nArguments: {"a": 1,\n "b": {"c": "}"}}\n'
    action = ModelAction("add", {"a": 1, "b": {"c": "}"}})
    assert read(text) == ModelReply(text, "I add.\nThen I see.", action)


def test_an_answer_goes_to_the_next_label():
    text = "Thought: Done.\nAnswer: It is 2.\nAction: add\nArguments: {}\n"
    assert read(text) == ModelReply(text, "Done.", answer="It is 2.")


def test_windows_line_ends_change_nothing():
    text = 'Thought: I add.\r\nAction: add\r\nArguments: {"a": 1}\r\n'
    assert read(text) == ModelReply(text, "I add.", ModelAction("add", {"a": 1}))


@pytest.mark.parametrize(
    "arguments",
    [
        'Arguments: {"a": 1}\nObservation: 2\nAnswer: 2',
        'Arguments: {"a": 1}\nAction: wipe\nArguments: {}',
        'Arguments: {"a": 1}\nAnswer: 2',
        'Arguments: {"a": 1} {"b": 2}',
        'Arguments: {"a": 1}}}',
        'Arguments: {"a": 1}"',
        'Arguments: {"a": 1}' + "[" * 1000,
        '\nArguments: ```json\n{"a": 1}\n```',
        '\nArguments: ```\r\n{"a": 1}```',
        '\nArguments: ``` {"a": 1}',
        '\nArguments: \n\n  {"a": 1}',
    ],
)
def test_the_first_action_is_believed_and_nothing_around_it(arguments):
    assert outcome(f"Action: add\n{arguments}") == ModelAction("add", {"a": 1})


@pytest.mark.parametrize(
    "text",
    [
        "Observation: 2\nAnswer: 2",
        "Thought: x\nObservation: 2\nAction: add\nArguments: {}",
        "Thought: x\nObservation: 2\nAnswer: 2",
        "Answer: 2\nObservation: yes\n",
        "Answer:\r\nObservation: yes",
    ],
)
def test_what_the_model_made_up_is_not_taken_for_a_tools_word(text):
    assert outcome(text) == model_replies.OBSERVATION_INVENTED


NO_OBJECTS = (
    "{",
    '{"a": 1',
    '{"a": "}',
    "{a: 1}",
    "{'a': 1}",
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": 99999999999999999999}',
    '{"a": "\\u0000"}',
    '{"a": "\\ud800"}',
    '{"a": 1]',
    '{"a": ' * 100_000,
    '{"a": ' * 60 + "1" + "}" * 60,
)
BEHIND = (
    "",
    "\n",
    "\nArguments:",
    "\nArguments: none",
    "\nArguments: none {}",
    "\nAction: add\nArguments: {}",
    "\nThought: hm\nArguments: {}",
    "\nObservation: x\nArguments: {}",
    "\nArguments:\nAction: add\nArguments: {}",
    "\n     Arguments: {}",
    "\narguments: {}",
    "\n{}",
)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        *((f"Action: wipe{behind}", "wipe had no arguments") for behind in BEHIND),
        *(
            (f"Action: add\nArguments: {given}\nAction: wipe\nArguments: {{}}", "arguments of add")
            for given in NO_OBJECTS
        ),
    ],
    ids=range(len(BEHIND) + len(NO_OBJECTS)),
)
def test_an_action_without_arguments_of_its_own_is_a_flaw_that_names_the_tool(text, flaw):
    move = read(text)
    assert move.action is None and flaw in move.flaw


def test_labels_inside_of_texts_are_text():
    value = {"a": "x\nAction: wipe\nArguments: {}", "b": '\\"}\nObservation: {'}
    text = f"Action: add\nArguments: {json.dumps(value)}"
    assert outcome(text) == ModelAction("add", value)
    assert outcome("Thought: I say Action: add, then\nAnswer: It said Action: none") == (
        "It said Action: none"
    )
    assert outcome("Answer: Action: none") == model_replies.NO_MOVE


UNLABELLED = (
    "Аction: add", "Action： add", "     Action: add", "action: add", "- Action: add",
    "\ufeffAction: add", "x\rAction: add", "x\u2028Action: add",
)  # fmt: skip
NO_NAMES = ("", "add it", "``", "аdd", "add(1)", "x" * 129, "\ufffd", "*")


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        *((line, model_replies.NO_MOVE) for line in UNLABELLED),
        *((f"Action: {name}", model_replies.NO_TOOL_NAME) for name in NO_NAMES),
    ],
)
def test_what_looks_like_a_label_is_none_and_an_action_names_one_tool(line, flaw):
    assert outcome(f"{line}\nArguments: {{}}") == flaw


@pytest.mark.parametrize("text", ["", " \n", "I would add.", "Thought: x", "Answer:", "Answer: \n"])
def test_what_is_neither_is_a_flaw(text):
    assert outcome(text) == model_replies.NO_MOVE


@pytest.mark.part("generated")
def test_a_long_answer_of_short_lines_is_read_in_no_time():
    assert read("\n" * 1_000_000).flaw == model_replies.NO_MOVE


@given(TEXTS, st.data())
def test_the_move_is_the_same_however_the_text_is_cut(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[at:to] for at, to in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    received, whole = [], []
    assert read(*pieces, tell=received.append) == read(text, tell=whole.append) == read(*text)
    assert "".join(received) == "".join(whole)


@given(TEXTS)
def test_a_move_is_an_action_an_answer_or_a_flaw(text):
    received = []
    move = read(text, tell=received.append)
    assert move.text == text
    assert [move.action, move.answer, move.flaw].count(None) == 2
    assert "".join(received).strip() == move.thought.strip()


@given(TEXTS, TEXTS)
def test_what_follows_an_action_never_changes_it(before, behind):
    move = read(before)
    if move.action is not None:
        assert read(before + behind).action == move.action


@given(TEXTS)
def test_an_action_is_what_stands_first_with_its_object_right_behind_it(text):
    move = read(text)
    if move.action is None:
        return
    head, _, rest = f"\n{text}".partition("\nAction:")
    name, _, behind = rest.partition("\n")
    assert "\nObservation:" not in head and "\nAnswer:" not in head
    assert name.strip() == move.action.name
    behind = behind.strip().removeprefix("Arguments:").strip()
    behind = behind.removeprefix("```json").removeprefix("```").strip()
    assert json.JSONDecoder(strict=True).raw_decode(behind)[0] == move.action.arguments


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_is_some_move(text):
    assert read(text).text == text
    assert model_replies.parse_native(text, ModelToolCall(text, text)).action is None


def test_a_native_call_is_the_action_and_the_words_beside_it_the_thought():
    move = model_replies.parse_native(" I add. ", ModelToolCall("add", '{"a": 1}'))
    assert move == ModelReply(" I add. ", "I add.", ModelAction("add", {"a": 1}))


@pytest.mark.parametrize("arguments", ["5", "[1]", "false", '{"a": 1}{"b": 2}', "{} Answer: 2"])
def test_native_arguments_that_are_no_object_are_a_flaw(arguments):
    move = model_replies.parse_native("I add.", ModelToolCall("add", arguments))
    assert (move.action, move.answer, move.thought) == (None, None, "I add.")
    assert "add" in move.flaw


def test_words_without_a_call_are_the_answer_and_silence_is_a_flaw():
    assert (
        model_replies.parse_native("2", None)
        == ModelReply("2", answer="2")
        == model_replies.parse_text("2")
    )
    assert (
        model_replies.parse_text(" \n").flaw
        == model_replies.parse_native("", None).flaw
        == model_replies.EMPTY_REPLY
    )


WEIGHED = "I could delete everything.\nAction: wipe_all\nArguments: {}\nNo, better not.\n"


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\n{WEIGHED}</think>\nAnswer: nothing to do",
        f"<THINKING>{WEIGHED}</THINKING>Answer: nothing to do",
        f"{WEIGHED}</think>\n\nAnswer: nothing to do",
        f"Thought: Well.\n[THINK]{WEIGHED}[/THINK]\nAnswer: nothing to do",
        f"◁think▷{WEIGHED}◁/think▷Answer: nothing to do",
        f"Sure! <reasoning>\n{WEIGHED}</reasoning>\nAnswer: nothing to do",
        f"Answer: <think>\n{WEIGHED}</think>nothing to do",
    ],
)
def test_reasoning_is_neither_obeyed_nor_the_answer_however_it_is_cut(text):
    assert outcome(text) == "nothing to do"
    assert [read(text[:at], text[at:]) == read(text) for at in range(len(text))].count(False) == 0
    assert read(*text) == read(text) and "wipe_all" not in read(text).thought


@pytest.mark.parametrize(
    "text", [f"<think>\n{WEIGHED}", f"Hm. <think>{WEIGHED}", f"{WEIGHED}</think>"]
)
def test_reasoning_alone_is_a_flaw(text):
    move = read(text)
    assert (move.action, move.answer) == (None, None) and move.flaw == model_replies.REASONING_ONLY


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\nmaybe\nAction: wipe_all\n</think>\n\nIt is noon.", "It is noon."),
        ("maybe\n</think>\nIt is noon.", "It is noon."),
        ("It is <reflection>is it?</reflection>noon.", "It is noon."),
        ("It is noon.\n<think>or is it", "It is noon."),
        ("Write `<think>` before it.", "Write `<think>` before it."),
        ("The tag <think> opens a block.", "The tag <think> opens a block."),
        ('{"steps": [{"text": "<think>x</think>"}]}', '{"steps": [{"text": "<think>x</think>"}]}'),
    ],
)
def test_words_are_shown_without_reasoning(text, answer):
    assert (
        model_replies.parse_text(text).answer
        == model_replies.parse_native(text, None).answer
        == answer
    )


def test_what_arguments_hold_is_kept_as_it_is():
    value = {"text": "<think>x</think>\nAnswer: 4"}
    assert outcome(f"Action: add\nArguments: {json.dumps(value)}") == ModelAction("add", value)


@pytest.mark.parametrize(
    "text",
    [
        'Action: "add"\nArguments: {"a": 1}',
        'Action: `add`\nArguments: `{"a": 1}`',
        '**Action:** **add**\n**Arguments:** {"a": 1}',
        'Action: “add”\nAction Input: {"a": 1}',
        '```\nThought: I add.\nAction: add\nArguments: {"a": 1}\n```',
        'Sure, here it is:\n\n```text\nAction: add\nArguments: {"a": 1}\n```\nDone.',
    ],
)
def test_quotes_fences_and_words_around_an_action_are_read_past(text):
    assert outcome(text) == ModelAction("add", {"a": 1})


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("```\nThought: x\nAnswer: 4\n```", "x", "4"),
        ("```\nAnswer: 4\n```\n", "", "4"),
        ("I know.\nThought: x\nAnswer: 4", "I know.\n x", "4"),
        ("Answer: 4\nThought: done\nAnswer: 5", "", "4"),
        ("Answer: Answer: 4", "", "4"),
        ("Final Answer: 4", "", "4"),
        ("Thought: Thought: x\nArguments: {}\nAnswer: 4", "x", "4"),
        ("Answer:\n```python\nx = 4\n```", "", "```python\nx = 4\n```"),
    ],
)
def test_no_word_of_the_format_stands_in_an_answer_or_a_thought(text, thought, answer):
    move = read(text)
    assert (move.thought, move.answer) == (thought, answer)


@pytest.mark.parametrize("arguments", ["", " \n", "null", "[]", '""', "{}"])
def test_empty_native_arguments_are_an_empty_object(arguments):
    assert model_replies.parse_native(
        "", ModelToolCall("get_clock", arguments)
    ).action == ModelAction("get_clock", {})


def test_calls_behind_the_first_are_kept_as_they_were_asked():
    more = (ModelToolCall("add", '{"a": 2}'), ModelToolCall("add", "?"))
    assert model_replies.parse_native("", ModelToolCall("add", '{"a": 1}'), more).further == more
    flawed = model_replies.parse_native("Hm.", ModelToolCall("add", "?"), more)
    assert flawed.action is None and '[add {"a": 2}]' in flawed.text and flawed.thought == "Hm."


TWO = 'Action: add\nArguments: {"a": 1}\n'


@pytest.mark.parametrize(
    ("behind", "further"),
    [
        ("", ()),
        ('Action: say\nArguments: {"b": 2}\n', (ModelToolCall("say", '{"b": 2}'),)),
        ("Thought: and then\n**Action:** `say`\nAction Input: ```json\n{}\n```",
         (ModelToolCall("say", "{}"),)),
        ("Action: say\nAction: add\nArguments: {",
         (ModelToolCall("say", ""), ModelToolCall("add", "{"))),
        ("Action: say\nArguments: {}\nObservation: said\nAction: wipe\nArguments: {}",
         (ModelToolCall("say", "{}"),)),
        ("<think>\nAction: wipe\nArguments: {}\n</think>\nAction: say\n",
         (ModelToolCall("say", ""),)),
        ("Answer: Action: say", ()),
        (" and Action: say\n", ()),
    ],
)  # fmt: skip
def test_actions_behind_the_first_are_kept_as_they_were_written(behind, further):
    move = read(TWO + behind)
    assert (move.action, move.further) == (ModelAction("add", {"a": 1}), further)
    assert read(*(TWO + behind)) == move


def test_behind_an_action_that_cannot_be_made_there_is_none_and_of_many_no_more_than_may_be():
    assert read("Action: add\nArguments: {\n" + TWO).further == ()
    assert len(read(TWO * 1_000).further) == 127
    (long,) = read(TWO + "Action: " + "x" * 9_000 + "\nArguments: {" + "y" * 9_000).further
    assert (len(long.name), len(long.arguments)) == (128, 2_000)
