"""An in-process cache of usage results, by organization.

Each organization has a share of its own: its callers evict no entries of another.
"""

from collections.abc import Callable
from functools import lru_cache
from uuid import UUID


def by_organization[Answer](
    *, each: int, organizations: int
) -> Callable[[Callable[..., Answer]], Callable[[UUID], Callable[..., Answer]]]:
    """Keep the last `each` answers of each of the `organizations` that asked last."""

    def decorate(work: Callable[..., Answer]) -> Callable[[UUID], Callable[..., Answer]]:
        @lru_cache(maxsize=organizations)
        def share(_: UUID) -> Callable[..., Answer]:
            return lru_cache(maxsize=each)(work)

        return share

    return decorate
