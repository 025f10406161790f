"""Configuration fragments for training frameworks: what they load, or the reason why not.

Facts about them are those of torchtitan (2026-08, b5bcd76c, and older versions that read TOML),
NeMo AutoModel (2026-08, 36044ad3) and Megatron-LM core (2026-08); none of them is imported.
"""
