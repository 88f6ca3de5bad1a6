"""What the web server calls: REST, pages and event streams, on WSGI threads."""

import os
from threading import Thread

from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()
# Generate the OpenAPI document in the background, before the first client asks for it.
Thread(target=import_string("tools.api.openapi.make"), name="openapi", daemon=True).start()
