"""The HTML report of a solve: one file without any network access, made from a result's folder."""
