"""The REST API, grouped by subject as pages are: serializers are beside their views. Views parse a
request, call one action or query, and render its result.
"""
