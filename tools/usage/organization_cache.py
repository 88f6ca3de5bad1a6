"""What a process remembers of figures, by organization.

Each has a share of its own: what its callers ask for pushes out nothing of another's.
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
