from dataclasses import dataclass
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.functions import Now

from tools.models.organization import Organization

DEFAULT_COLLECTION = "default"


@dataclass(frozen=True, slots=True)
class GraphScope:
    """One graph of one organization, which is all that a search ever sees."""

    organization_id: UUID
    collection: str

    @classmethod
    def of(cls, organization_id: UUID, collection: str | None) -> "GraphScope":
        return cls(organization_id, collection or DEFAULT_COLLECTION)


class ScopedQuerySet(models.QuerySet["models.Model"]):
    def within(self, scope: GraphScope) -> "ScopedQuerySet":
        return self.filter(organization_id=scope.organization_id, collection=scope.collection)


class KnowledgeEntry(models.Model):
    """The search entry of one entity. The graph is the source of truth: a row can be rebuilt.

    `names` are its labels, folded and whole; `kinds` are its types by every name but their
    labels; `words` weighs labels (A), descriptions (B), other texts (C) and the IRI's end (D).
    """

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    collection = models.CharField(max_length=63)
    iri = models.TextField()
    shown = models.JSONField(help_text="Labels and descriptions, each with its language.")
    types = ArrayField(models.TextField())
    kinds = ArrayField(models.TextField())
    names = ArrayField(models.TextField())
    label_text = models.TextField()
    label_words = SearchVectorField()
    words = SearchVectorField()
    indexed_at = models.DateTimeField(db_default=Now())

    objects = ScopedQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "organization", "collection", "iri", name="knowledge_entry_once"
            ),
        ]
        # Each index begins with the organization, so that a search does not read the graphs of
        # others. `fastupdate` is off: a pending list would slow readers down.
        indexes = [
            GinIndex(
                fields=["organization", "collection", "words", "kinds"],
                name="knowledge_entry_by_word",
                fastupdate=False,
            ),
            GinIndex(
                fields=["organization", "collection", "label_words", "kinds"],
                name="knowledge_entry_by_label",
                fastupdate=False,
            ),
            GinIndex(
                fields=["organization", "collection", "names"],
                name="knowledge_entry_by_name",
                fastupdate=False,
            ),
            GinIndex(
                "organization",
                "collection",
                OpClass("label_text", name="gin_trgm_ops"),
                name="knowledge_entry_by_letters",
                fastupdate=False,
            ),
        ]

    def __str__(self) -> str:
        return self.iri


class KnowledgeIndex(models.Model):
    """How far the entries of one graph are in step with it.

    `complete` is false where the graph had data before the index was created.
    """

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    collection = models.CharField(max_length=63)
    complete = models.BooleanField()
    indexed_at = models.DateTimeField(db_default=Now())
    rebuilt_at = models.DateTimeField(null=True)

    objects = ScopedQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "collection", name="knowledge_index_once"),
        ]

    def __str__(self) -> str:
        return self.collection


class KnowledgePending(models.Model):
    """A write to a graph that has begun, and whose entities are not yet known to be indexed."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    collection = models.CharField(max_length=63)
    begun_at = models.DateTimeField(db_default=Now())

    objects = ScopedQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["organization", "collection"], name="knowledge_pending_of_graph"),
        ]

    def __str__(self) -> str:
        return self.collection
