"""The REST API, grouped by subject as pages are: serializers stand beside their views. Views
translate, call one action or query, and translate back.
"""
