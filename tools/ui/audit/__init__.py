"""The pages of evidence: records, proofs, exports, alerts and their rules. What they show comes
from `audit`.
"""
