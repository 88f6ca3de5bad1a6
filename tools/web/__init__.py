"""Code that pages, the API and the Django admin share: forms that call actions and act once, lists,
the decorator of pages, pagination, query parameters, proof of identity, the actions that fields
call, probes and CSP reports. Pages and endpoints of the API are in `tools.ui` and `tools.api`.
"""
