"""The database finds the same confusable names as `skeleton` does."""

import itertools
import string

from django.db.models import TextField, Value

from tests import factories
from tools.definitions.texts.lookalikes import skeleton
from tools.models import Organization
from tools.models.tool import Skeleton

CHARACTERS = string.ascii_letters + string.digits + "_.-"
WORDS = ["modern_Read.1ll-O0", "r_n", "R.N", "rrnn", "IIl1", "...", "Turnip-r0n"]


def test_the_database_has_the_same_skeletons(db):
    names = [*map("".join, itertools.product(CHARACTERS, repeat=2)), *WORDS]
    factories.organization("names")
    here = Organization.objects.all()[:1]
    for some in itertools.batched(names, 500):
        columns = {f"n{at}": Skeleton(Value(name, TextField())) for at, name in enumerate(some)}
        assert here.annotate(**columns).values_list(*columns).get() == tuple(map(skeleton, some))
