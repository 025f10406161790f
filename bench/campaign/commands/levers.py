"""``frontier --by-mode``: a curve per choice of memory modes, and what is said of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from campaign.case import Case, close
from campaign.judge.exact import Truth
from campaign.judge.limits import nearest, share, upper
from campaign.judge.reading import load

KEEP = "keep"
VERDICT = r"(proven optimal|gap ([\d.]+|<0\.01) %)"


@dataclass
class Lever:
    """A curve's name, its modes, its problem, and (capacity, value) of its judged schedules."""

    name: str
    modes: tuple[str, ...]
    document: dict[str, Any]
    curve: dict[str, Any] = field(default_factory=dict)
    known: list[tuple[float, int]] = field(default_factory=list)

    def least_at(self, cap: float) -> int | None:
        """The least value of a judged schedule that fits."""
        return min((value for peak, value in self.known if peak <= cap), default=None)


def mode_names(document: dict[str, Any]) -> list[str]:
    """Names of all modes, in the order in which they come."""
    return list(
        dict.fromkeys(mode["name"] for s in document["stages"] for mode in s.get("modes", ()))
    )


def levers_of(document: dict[str, Any]) -> list[Lever]:
    """Keep alone, each mode on its own, all modes."""
    names = tuple(mode_names(document))
    chosen = [(), *((name,) for name in names), *([names] if len(names) > 1 else [])]
    return [Lever(" or ".join(some) or KEEP, some, allowing(document, some)) for some in chosen]


def allowing(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The problem with these modes alone."""
    stages = []
    for stage in document["stages"]:
        kept = [mode for mode in stage.get("modes", ()) if mode["name"] in names]
        own = {key: value for key, value in stage.items() if key != "modes"}
        stages.append(own | ({"modes": kept} if kept else {}))
    rest = {k: v for k, v in document.items() if names or k != "mode_choice"}
    return rest | {"stages": stages}


def compared(case: Case, levers: list[Lever], rows: list[dict[str, Any]], truth_at: Any) -> None:
    """Hold every row against schedules that were judged, and against the truth at its capacity."""
    for row in rows:
        cap, said = row["cap"], row["levers"]
        where = f"compared at {cap}"
        if not case.expect(list(said) == [one.name for one in levers], f"{where}: {list(said)}"):
            continue
        for lever in levers:
            claims = said[lever.name]
            text = f"{where}, {lever.name}: {claims}"
            _value(case, lever, cap, claims, text)
            _bound(case, levers, lever, cap, claims, text)
            truth: Truth = truth_at(lever, cap)
            value, bound = claims["value"], claims["lower_bound"]
            case.expect(value is None or value >= truth.lower, f"{text}, below {truth.lower}")
            possible = truth.upper is None or bound is None or bound <= truth.upper
            case.expect(possible, f"{text}, though {truth.upper} is possible")
            if claims["status"] == "infeasible":
                case.expect(not truth.feasible, f"{text}, the oracle has {truth.upper}")
        known = {name: c["value"] for name, c in said.items() if c["value"] is not None}
        best = min(known, key=lambda name: known[name], default=None)
        case.expect(row["best"] == best, f"{where}: best {row['best']}, {known}")
        most = said[levers[-1].name]["value"]
        least = min(known.values(), default=None)
        case.expect(most == least, f"{where}: all modes {most}, best of any {least}")


def _value(case: Case, lever: Lever, cap: int, claims: dict[str, Any], text: str) -> None:
    value, bound, status = claims["value"], claims["lower_bound"], claims["status"]
    least = lever.least_at(cap)
    case.expect(value is not None or least is None, f"{text}, a judged schedule has {least}")
    shown = value is None or any(v == value and peak <= cap for peak, v in lever.known)
    case.expect(shown, f"{text}: none of the schedules written has it")
    case.expect(value is None or least is None or value <= least, f"{text}, {least} is known")
    optimal = value is not None and value == bound
    case.expect((status == "optimal") == optimal, f"{text}: status")
    gap = None if value is None or bound is None else (value - bound) / value if value else 0.0
    case.expect(close(claims["gap"], gap), f"{text}: gap")


def _bound(
    case: Case, levers: list[Lever], lever: Lever, cap: int, claims: dict[str, Any], text: str
) -> None:
    """No schedule that has modes of the lever alone, and fits, is below its bound."""
    for other in levers:
        if set(other.modes) <= set(lever.modes):
            least, bound = other.least_at(cap), claims["lower_bound"]
            false = bound is not None and least is not None and least < bound
            case.expect(not false, f"{text}, but {other.name} has {least}")


def statements(
    case: Case, levers: list[Lever], rows: list[dict[str, Any]], text: str, own: int | None
) -> None:
    """Hold the printed sentences against the rows and the ends of the curves."""
    flat = " ".join(text.split())
    problem = load(case.folder / "problem.json")
    time, memory = _time(problem), _memory(problem)
    ends = {
        lever.name: (point["value"], max(point["peak_memory"]))
        for lever in levers
        for point in lever.curve["points"]
        if point["cap"] is None and point["value"] is not None
    }
    if rows:
        found = re.search(
            r"(?:^| )at ([\d,]+)(?: M?i?B)?(?: \(-?[\d.]+ x 1F1B\))?: (?=.*with ample memory)", flat
        )
        if case.expect(found is not None, "levers: no sentence at a capacity"):
            assert found is not None
            sentence = flat[found.end() :].split(" with ample memory")[0]
            _at(case, rows, int(found[1].replace(",", "")), sentence, own, time)
    if ends:
        least = min(value for value, _ in ends.values())
        names = [f"{n} from {memory(peak)}" for n, (value, peak) in ends.items() if value == least]
        start = f"with ample memory: {time(least)} ("
        case.expect(start in flat, f"levers: no sentence {start!r}")
        tail = flat.partition(start)[2]
        said = [n for n, (_, peak) in ends.items() if f"by {n} from {memory(peak)} " in f"{tail} "]
        wanted = [name.rpartition(" from ")[0] for name in names]
        case.expect(said == wanted, f"levers: {tail!r}, expected {names}")


def _time(problem: dict[str, Any]) -> Callable[[int], str]:
    """Say a small time as answers do: in ms where it is told to be in us."""
    return (lambda n: f"{n / 1000:.4g} ms") if problem.get("time_unit") == "us" else "{:,}".format


def _memory(problem: dict[str, Any]) -> Callable[[int], str]:
    """Say a small amount as answers do; nothing has no prefix."""
    in_mib = problem.get("memory_unit") == "MiB"
    return (lambda n: f"{n} MiB" if n else "0 B") if in_mib else "{:,}".format


def _at(
    case: Case,
    rows: list[dict[str, Any]],
    cap: int,
    sentence: str,
    own: int | None,
    time: Callable[[int], str],
) -> None:
    where = f"levers: {sentence!r} at {cap}"
    caps = [row["cap"] for row in rows]
    if not case.expect(cap in caps and (own not in caps or cap == own), f"{where}, rows {caps}"):
        return
    row = rows[caps.index(cap)]
    values = {name: claims["value"] for name, claims in row["levers"].items()}
    for name in dict.fromkeys((row["best"], KEEP)):  # the table has all others
        claims = row["levers"].get(name, {"value": None})
        if claims["value"] is None:
            continue
        label = r"Waiting \(keep\):" if name == KEEP else re.escape(name)
        said = re.search(rf"{label} {re.escape(time(claims['value']))} \({VERDICT}\)", sentence)
        if case.expect(said is not None, f"{where}: nothing of {name} {claims}"):
            assert said is not None
            proven = said[1] == "proven optimal"
            case.expect(proven == (claims["status"] == "optimal"), f"{where}: {name} {claims}")
            gap = share(claims["value"] - (claims["lower_bound"] or 0), claims["value"])
            case.expect(proven or upper(said[2], gap), f"{where}: {name} {claims}")
    best, keep = row["best"], values[KEEP]
    shorter = re.search(r"([\d.]+|<0\.01) % shorter than waiting", sentence)
    expected = best not in (None, KEEP) and keep is not None
    case.expect((shorter is not None) == expected, f"{where}: {values}")
    if shorter is not None and expected:
        gain = share(keep - values[best], keep)
        case.expect(nearest(shorter[1], gain), f"{where}: {values}")
    if best is not None:
        first = f"{best} {time(values[best])} "
        case.expect(sentence.startswith(first), f"{where}: the best is {best}")
