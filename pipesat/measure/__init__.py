"""What is measured: runs in torch, profiles, timelines and traces, against what was predicted."""
