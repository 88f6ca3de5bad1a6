"""What pages, Django's administration and the operators' probes share, below all of them. No
page and no endpoint of the API stands here.
"""
