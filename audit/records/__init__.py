"""Records after they were written: searched, read on record, erased, and archived. Writing them
is `audit.actions`.
"""
