"""API of calls awaiting approval and of the rules that require one."""
