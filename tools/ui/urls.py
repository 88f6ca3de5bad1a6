from django.urls import URLPattern, path

from tools.ui import (
    catalog,
    confirmations,
    editor,
    executions,
    explain,
    exporting,
    importing,
    licenses,
    login,
    sandbox,
    tool,
    workflow,
)

EXECUTION = "executions/<uuid:execution_id>/"

urlpatterns: list[URLPattern] = [
    path("", catalog.tool_list, name="catalog"),
    path("login/", login.log_in, name="login"),
    path("logout/", login.log_out, name="logout"),
    path("tools/<str:name>/", tool.tool_page, name="tool"),
    path("tools/<str:name>/enable", catalog.switch, {"enabled": True}, name="tool-enable"),
    path("tools/<str:name>/disable", catalog.switch, {"enabled": False}, name="tool-disable"),
    path("tools/<str:name>/try", tool.try_tool, name="tool-try"),
    path("tools/<str:name>/versions/<int:number>/", tool.version_page, name="tool-version"),
    path("editor/", editor.write_tool, name="tool-new"),
    path("editor/<str:name>/", editor.change_tool, name="tool-edit"),
    path("tools/<str:name>/export", exporting.export_tool, name="tool-export"),
    path("import/", importing.import_page, name="import"),
    path("export/", exporting.export_catalog, name="export"),
    path("workflow/", workflow.workflow_page, name="workflow"),
    path("explain/", explain.explain_page, name="explain"),
    path("explain/what-if/", explain.what_if_page, name="what-if"),
    path("sandbox/", sandbox.sandbox_page, name="sandbox"),
    path("licenses/", licenses.license_page, name="licenses"),
    path("licenses/tier", licenses.change_tier, name="licenses-change"),
    path("confirmations/", confirmations.queue, name="confirmations"),
    path("confirmations/decide", confirmations.decide, name="confirmations-decide"),
    path("confirmations/<uuid:confirmation_id>/", confirmations.one, name="confirmation"),
    path("executions/", executions.execution_list, name="executions"),
    path(EXECUTION, executions.execution_page, name="execution"),
    path(f"{EXECUTION}cancel", executions.cancel, name="execution-cancel"),
    path(f"{EXECUTION}resolve", executions.resolve, name="execution-resolve"),
]
