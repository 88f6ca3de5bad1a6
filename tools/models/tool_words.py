from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.functions import Now

from tools.models.agent import Agent
from tools.models.organization import Organization
from tools.models.tool import Tool
from tools.models.user import User

LONGEST_QUESTION = 300


class ToolWords(models.Model):
    """The search entry of a tool: the words of its current version, and of questions it
    answered."""

    tool = models.OneToOneField(
        Tool, on_delete=models.CASCADE, primary_key=True, related_name="found_by"
    )
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=71, help_text="Of the version whose words these are.")
    words = SearchVectorField()
    letters = models.TextField()

    class Meta:
        # The organization is first, so that a search does not read the catalogs of others.
        indexes = [
            GinIndex(fields=["organization", "words"], name="tool_by_word", fastupdate=False),
            GinIndex(
                "organization",
                OpClass("letters", name="gin_trgm_ops"),
                name="tool_by_letters",
                fastupdate=False,
            ),
        ]

    def __str__(self) -> str:
        return str(self.tool_id)


class ToolSearch(models.Model):
    """A search for tools, until it is known which tool was called after it."""

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, related_name="+")
    question = models.CharField(max_length=LONGEST_QUESTION)
    found = ArrayField(models.UUIDField())
    asked_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["asked_at"], name="tool_search_by_age"),
            models.Index(fields=["organization"], name="tool_search_of_place"),
        ]

    def __str__(self) -> str:
        return self.question


class ToolQuestion(models.Model):
    """The words of a question after which this tool was called with success."""

    id = models.BigAutoField(primary_key=True)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="questions")
    question = models.CharField(max_length=LONGEST_QUESTION)
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint("tool", "question", name="tool_question_once")]

    def __str__(self) -> str:
        return self.question
