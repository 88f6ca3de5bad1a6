"""The tools that come with the product: their definitions, and how the isolated ones are run."""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from sandbox.spec import IsolationLevel, Mount, Profile
from tools.builtin.call_definitions import CALL_TOOLS
from tools.builtin.content_definitions import CONTENT_TOOLS
from tools.builtin.knowledge_definitions import KNOWLEDGE_TOOLS
from tools.builtin.model_definitions import MODEL_TOOLS
from tools.builtin.workspaces import workspace_path
from tools.definitions.implementations.tool_types import RUN_PROGRAM

INSIDE = "/workspace"
# What importing trafilatura imports; what is not mounted is not there.
_EXTRACTOR_PACKAGES = (
    *("trafilatura", "lxml", "lxml_html_clean", "justext", "htmldate", "courlan", "tld"),
    *("charset_normalizer", "dateutil", "six", "babel", "urllib3", "certifi"),
)


@lru_cache(maxsize=32)
def _source(module: str) -> str:
    return resources.files("tools.builtin.isolated").joinpath(f"{module}.py").read_text("utf-8")


@lru_cache(maxsize=32)
def _library(name: str) -> str:
    """The directory of an installed package, or the file of a single module, to be bound read-only
    into the sandbox."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise LookupError(f"the package {name} is not installed")
    origin = Path(found.origin)
    return str(origin.parent if found.submodule_search_locations else origin)


@lru_cache(maxsize=8)
def _metadata_directory(distribution: str) -> str:
    """The directory where an installer wrote what it installed: some packages read it."""
    found = importlib.metadata.distribution(distribution)
    (metadata,) = (file for file in found.files or () if file.name == "METADATA")
    return str(found.locate_file(metadata.parent))


def _preloaded(*modules: str) -> tuple[tuple[str, str], ...]:
    return tuple((module, _source(module)) for module in modules)


def _read_profile(organization: str) -> Profile:
    mount = Mount(str(workspace_path(organization)), INSIDE, make=True)
    return Profile(
        IsolationLevel.STANDARD, mounts=(mount,), preload=_preloaded("workspace", "read_file")
    )


def _write_profile(organization: str) -> Profile:
    mount = Mount(str(workspace_path(organization)), INSIDE, writable=True, make=True)
    return Profile(
        IsolationLevel.STANDARD, mounts=(mount,), preload=_preloaded("workspace", "write_file")
    )


def _validation_profile(organization: str) -> Profile:
    return Profile(
        IsolationLevel.STANDARD,
        libraries=(_library("yaml"), _library("jsonschema_rs"), _library("lxml")),
        preload=(
            ("plain_yaml", _text_of("tools.definitions.values", "plain_yaml.py")),
            ("patterns", _text_of("tools.definitions.schemas", "patterns.py")),
            *_preloaded("positions", "table_schema", "tables", "xml_documents"),
            *_preloaded("validate_content"),
        ),
    )


def _fetch_profile(organization: str) -> Profile:
    return Profile(
        IsolationLevel.STANDARD,
        libraries=(*map(_library, _EXTRACTOR_PACKAGES), _metadata_directory("trafilatura")),
        preload=_preloaded("charsets", "readable", "web_fetch"),
    )


def _program_profile(_organization: str) -> Profile:
    """The same for every organization: a program sees nothing but what it is given."""
    return Profile(IsolationLevel.RESTRICTED, preload=_preloaded("program"))


@lru_cache(maxsize=8)
def _text_of(package: str, file: str) -> str:
    """A reader that is used outside as well: what it imports, there is inside too."""
    return resources.files(package).joinpath(file).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Isolated:
    """A built-in that runs inside the sandbox: its module there and what it may see.

    `network` says that it reaches out, to what its organization allows.
    """

    module: str
    profile: Callable[[str], Profile]
    network: bool = False


ISOLATED = {
    "read_file": Isolated("read_file", _read_profile),
    "write_file": Isolated("write_file", _write_profile),
    "validate_content": Isolated("validate_content", _validation_profile),
    "web_fetch": Isolated("web_fetch", _fetch_profile, network=True),
    RUN_PROGRAM: Isolated("program", _program_profile),
}

DEFINITIONS = (*CONTENT_TOOLS, *KNOWLEDGE_TOOLS, *CALL_TOOLS, *MODEL_TOOLS)
GROUPS: tuple[tuple[str, str, list[str]], ...] = (
    ("default", "Tools that name no group of their own.", []),
    ("read-only", "Tools that change nothing.", ["tool.filesystem.read"]),
    ("write", "Tools that change files.", ["tool.filesystem.read", "tool.filesystem.write"]),
    ("network", "Tools that reach hosts outside.", ["tool.network.fetch"]),
    ("knowledge", "Tools of the knowledge graph.", ["tool.knowledge.read"]),
    ("knowledge/read", "Tools that read the graph.", ["tool.knowledge.read"]),
    ("knowledge/write", "Tools that add to the graph.", ["tool.knowledge.write"]),
    ("messages", "Tools that send messages to people.", ["tool.message.send"]),
    ("composition", "Tools that make calls of other tools.", []),
    ("agents", "Tools that think with a model.", []),
)
