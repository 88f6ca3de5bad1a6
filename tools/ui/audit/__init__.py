"""Pages of the audit log: records, proofs, exports, alerts and alert rules. Their data comes from
`audit`.
"""
