"""Object permissions and who granted them: given, taken, listed and narrowed. Gates read them;
they decide nothing here.
"""
