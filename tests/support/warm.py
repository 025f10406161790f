"""Hosts that are kept from one run to the next, so that torch is imported once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipesat.measure.processes.forks import Host


class WarmHosts:
    """Stands in for ``Host`` where ranks are started; a host in which anything hung is closed."""

    def __init__(self, folder: Path) -> None:
        self.own = dict.fromkeys(("TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder))
        self.kept: dict[str, Host] = {}

    def __call__(self, more: Mapping[str, str]) -> WarmHosts:
        self.devices = more.get("CUDA_VISIBLE_DEVICES", "any")
        known = self.kept.get(self.devices)
        if known is not None and known.process.poll() is not None:
            self.kept.pop(self.devices).end()
        if self.devices not in self.kept:
            self.kept[self.devices] = Host({**more, **self.own})
        return self

    def __enter__(self) -> Host:
        return self.kept[self.devices]

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.kept.pop(self.devices).end()

    def close(self) -> None:
        for host in self.kept.values():
            host.end()
