"""Configuration fragments for training frameworks: what they load, or the reason why not.

Each module names the release that it writes for; `tests/export/test_framework_releases.py` holds
the fragments against the released packages' own classes. None of them is imported here.
"""
