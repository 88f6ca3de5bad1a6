"""The tools that come with the product: their definitions, and in `isolated` what runs in the
sandbox. How they are run is the runners' part.
"""
