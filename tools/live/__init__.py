"""Server-sent events (SSE) that make pages reload a part when a call changes, served by a separate
asyncio process. Events carry no content of calls.
"""
