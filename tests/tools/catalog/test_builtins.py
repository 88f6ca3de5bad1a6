from tests import factories
from tools.builtin.workspaces import workspace_path
from tools.catalog.builtins import install_builtins
from tools.models import Tool


def test_a_new_organization_has_its_built_in_tools_and_a_workspace(organization):
    names = set(Tool.objects.filter(organization=organization).values_list("name", flat=True))
    assert sorted(names) == factories.BUILTIN_NAMES
    assert workspace_path(organization.slug).is_dir()


def test_installing_again_adds_nothing(organization):
    assert install_builtins(organization=organization, by=factories.actor(organization)) == []
