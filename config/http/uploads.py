"""Uploaded files of forms: kept in memory up to a bound; what is beyond it is dropped.

Forms are read before authentication (the CSRF check reads them), so uploads must cost little: no
temporary file is written, and all files of a request share one bound.
"""

from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import InMemoryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class BoundedUploads(FileUploadHandler):
    """A file beyond the bound is cut there, and the view that reads it finds it too large."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.left = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        self.content = BytesIO()

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.content = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        kept = raw_data[: max(self.left, 0)]
        self.left -= len(kept)
        self.content.write(kept)

    def file_complete(self, file_size: int) -> InMemoryUploadedFile:
        self.content.seek(0)
        return InMemoryUploadedFile(
            self.content, self.field_name, self.file_name or "", self.content_type or "",
            self.content.getbuffer().nbytes, self.charset, self.content_type_extra,
        )  # fmt: skip
