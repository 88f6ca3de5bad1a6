"""The OpenAPI document of the API and what it says beyond what is found in the views."""
