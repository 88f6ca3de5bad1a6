"""Templates of prompts: their syntax, and the bounded work of rendering them."""

import pytest

from tools.definitions.texts import templates
from tools.definitions.texts.templates import BadTemplate, CannotRender

ATTACKS = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ text.__class__ }}",
    "{{ text._private }}",
    "{{ text|attr('__class__') }}",
    "{{ text.format(text) }}",
    "{{ '%99999999d' % 1 }}",
    "{{ '{:>99999999}'.format(text) }}",
    "{{ 'a' * 999999999 }}",
    "{{ 9**9**9 }}",
    "{{ text ~ text }}",
    "{{ [text, text]|join }}",
    "{{ text|join(text) }}",
    "{{ text|join('12345678')|upper|join('12345678') }}",
    "{{ (text|join('a') or text)|join('a') }}",
    "{{ text|d(text|join('a'))|join('a') }}",
    "{{ text|replace('', text) }}",
    "{{ text|center(999999999) }}",
    "{{ text|tojson|tojson }}",
    "{{ self }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ config }}",
    "{{ request }}",
    "{{ lipsum(n=9999) }}",
    "{{ namespace() }}",
    "{{ text[0:9] }}",
    "{% set a = text %}",
    "{% for i in range(999999999) %}x{% endfor %}",
    "{% for a in text|list %}x{% endfor %}",
    "{% for a, b in text %}x{% endfor %}",
    "{% for a in text recursive %}{{ loop(a) }}{% endfor %}",
    "{% for a in text %}{% for b in text %}{% for c in text %}x"
    "{% endfor %}{% endfor %}{% endfor %}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'base.html' %}",
    "{% block a %}{% endblock %}",
    "{% call text() %}{% endcall %}",
    "{% filter upper %}x{% endfilter %}",
    "{% with a = text %}{{ a }}{% endwith %}",
    "{% autoescape true %}x{% endautoescape %}",
    "{% if text is callable %}x{% endif %}",
    "{{ " + "(" * 5_000 + " }}",
    "{{ " + "not " * 4_000 + "text }}",
    "{% if text %}" * 100 + "{% endif %}" * 100,
    "{{ " + "9" * 19_000 + " }}",
    "x" * 20_001,
]


UNDECLARED = ("{{ other }}", "{% if other %}x{% endif %}", "{{ a.b }}")


@pytest.mark.parametrize(
    ("template", "flaw"),
    [
        *((one, None) for one in ATTACKS),
        *((one, r"'(other|a)', which is not a declared parameter") for one in UNDECLARED),
        ("{{ text", "is not a template: unexpected end"),
    ],
    ids=range(len(ATTACKS) + len(UNDECLARED) + 1),
)
def test_what_is_no_harmless_template_is_refused_with_its_flaw_when_it_is_written(template, flaw):
    with pytest.raises(BadTemplate, match=flaw):
        templates.check_template(template, ["text"])


def rendered(template, **arguments):
    templates.check_template(template, arguments)
    return templates.render_template(template, arguments)


def test_arguments_are_data_and_never_read_as_a_template():
    assert rendered("Say: {{ text }}", text="{{ 7 * 7 }}{% raw %}") == "Say: {{ 7 * 7 }}{% raw %}"


def test_objects_and_lists_are_written_as_json_and_null_as_nothing():
    given = {"a": [1, True, None, "ü"]}
    assert rendered("{{ x }}|{{ y }}|{{ z }}", x=given, y=None, z=True) == (
        '{"a": [1, true, null, "ü"]}||true'
    )


def test_an_attribute_is_a_member_and_nothing_else():
    assert rendered("{{ x.name }}{{ x['keys'] }}{{ x.items }}", x={"name": "n"}) == "n"
    assert rendered("{{ x['__class__'] }}{{ x[5] }}{{ x[0] }}", x=["first"]) == "first"
    assert rendered("{{ x['upper'] }}", x="text") == ""


def test_conditions_loops_and_filters_do_what_prompts_need():
    template = (
        "{% for one in steps %}{{ loop.index }}. {{ one.name|upper|trim }}"
        "{% if not loop.last %}; {% endif %}{% endfor %}"
        "{% if 'x' in text %}!{% endif %}{{ tags|join(', ') }}{{ text|default('-') }}"
    )
    given = {"steps": [{"name": "a "}, {"name": "b"}], "text": "xy", "tags": ["p", "q"]}
    assert rendered(template, **given) == "1. A; 2. B!p, qxy"


def test_an_argument_that_was_left_out_is_nothing():
    templates.check_template("{{ a }}{{ b.c.d }}{% for x in b %}{{ x }}{% endfor %}", ["a", "b"])
    assert (
        templates.render_template("{{ a }}{{ b.c.d }}{% for x in b %}{{ x }}{% endfor %}", {}) == ""
    )


@pytest.mark.parametrize(
    ("template", "given"),
    [
        ("{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}", [1] * 5_000),
        ("{% for a in x %}{{ x }}{% endfor %}", ["a" * 1_000] * 100),
        ("{{ x }}", "a" * 200_001),
        ("{{ x|join('12345678') }}", "a" * 100_000),
        ("{% for a in x %}.{% endfor %}", "text"),
        ("{{ x|length }}", 5),
        ("{{ x < 'a' }}", 5),
    ],
)
def test_arguments_that_make_too_much_or_do_not_fit_are_distinguished_from_a_fault(template, given):
    templates.check_template(template, ["x"])
    with pytest.raises(CannotRender):
        templates.render_template(template, {"x": given})


def test_a_template_that_is_looked_at_and_never_rendered_is_not_kept():
    rendered = "Dear {{ name }}"
    assert templates.render_template(rendered, {"name": "Ada"}) == "Dear Ada"
    kept = templates._compile_template.cache_info()
    for number in range(20):
        templates.check_template(f"Draft {number} of {{{{ name }}}}", ["name"])
    assert templates._compile_template.cache_info() == kept
