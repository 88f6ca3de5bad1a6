"""Tags of every template: `{% form_token %}`, which each form that is sent by POST begins with."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tools.web import one_time

register = template.Library()


@register.simple_tag(takes_context=True)
def form_token(context: template.Context) -> SafeString:
    """The CSRF token, and the form's one-time key."""
    return format_html(
        '<input type="hidden" name="{}" value="{}"><input type="hidden" name="{}" value="{}">',
        one_time.CSRF_FIELD, context.get("csrf_token", ""), one_time.FIELD, one_time.new_key(),
    )  # fmt: skip
