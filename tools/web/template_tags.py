"""Tags of every template: `{% form_token %}`, which each form that is sent by POST begins with, and
`{% moment %}`, which each time is shown by.
"""

from datetime import datetime

from django import template
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.utils import timezone
from django.utils.dateformat import format as format_date
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timeuntil

from tools.web import one_time

register = template.Library()
AGO, UNTIL = "ago", "until"
_WHOLE = "j M Y H:i:s T"


@register.simple_tag(takes_context=True)
def form_token(context: template.Context) -> SafeString:
    """The CSRF token, and the form's one-time key."""
    csrf = str(context.get("csrf_token", ""))
    return _hidden(one_time.CSRF_FIELD, csrf) + one_time_key()


@register.simple_tag
def one_time_key() -> SafeString:
    """For forms of Django's own templates, which have the CSRF token."""
    return _hidden(one_time.FIELD, one_time.new_key())


def _hidden(name: str, value: str) -> SafeString:
    return format_html('<input type="hidden" name="{}" value="{}">', name, value)


@register.simple_tag
def moment(at: datetime | None, form: str = "j M Y H:i", after: str = "") -> SafeString:
    """A time in the reader's time zone, which its title tells. `form` is a format of dates, or
    `ago`: how long ago it was, or will be; or `until`: in what time it will be, which a script
    counts down. `after` is shown instead: a duration until then."""
    if at is None:
        return format_html("{}", "–")
    here = timezone.localtime(at)
    if form == AGO:
        shown = naturaltime(at)
    else:
        shown = f"in {timeuntil(at, depth=1)}" if form == UNTIL else format_date(here, form)
    return format_html(
        '<time datetime="{}" title="{}"{}>{}</time>',
        here.isoformat(),
        format_date(here, _WHOLE),
        " data-until" if form == UNTIL else "",
        after or shown,
    )
