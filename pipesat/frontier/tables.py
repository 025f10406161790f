"""What a frontier says: a few lines, then a table per curve and of the hand-written schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pipesat.core.amounts import memory_text, rounded, rounded_up, time_text
from pipesat.core.claims import Standing, as_given, at_most, excess, plural
from pipesat.core.showing import Column, Table, number
from pipesat.core.stage import KEEP
from pipesat.core.summary import units_of
from pipesat.frontier.caps import Scale1F1B
from pipesat.frontier.curve import Curve
from pipesat.frontier.levers import Compared, own_cap
from pipesat.frontier.min_memory import Sufficient
from pipesat.frontier.trace import CapRow, Frontier

_CLOSE = Fraction(1, 20)  # of the best value: what a user may accept for less memory


def curve_lines(frontier: Frontier) -> Iterator[tuple[str, str]]:
    """Yield the best of a curve, what less memory costs, and what is proven."""
    problem, known = frontier.curve.problem, [row for row in frontier.rows if row.known is not None]
    if not known:
        yield "Best", "no schedule found in time"
        return
    best = known[-1]
    yield "Best", f"{_point(frontier, best)}, {_verdict(frontier)}"
    close = next(row for row in known if row.over_best is not None and row.over_best <= _CLOSE)
    if close.known is not best.known:
        yield "Near it", f"{_point(frontier, close)}, {at_most(close.over_best, 1)} longer"
    yield "Least", f"{_point(frontier, known[0])}, {at_most(known[0].over_best, 1)} longer"
    own = own_cap(problem)
    at_own = None if own is None else frontier.curve.standing(own)
    if own is not None and at_own is not None and at_own.value is not None:
        memory = memory_text(own, problem.memory_unit, rounded)
        time = time_text(at_own.value, problem.time_unit)
        yield "Yours", f"{time} with the {memory} that the problem has, {at_own.verdict}"
    yield "Proof", proof_text(frontier)
    yield "Searched", f"{frontier.wall_s:.1f} s"


def _point(frontier: Frontier, row: CapRow) -> str:
    problem = frontier.curve.problem
    if row.known is None:
        return "no schedule found"
    time = time_text(row.known.value, problem.time_unit)
    text = f"{time} with {memory_text(row.known.peak, problem.memory_unit)} per device"
    scale = frontier.scale
    return text if scale is None else f"{text} ({_share(scale, row.known.peak)} x 1F1B)"


def _share(scale: Scale1F1B, memory: int) -> str:
    return rounded_up(scale.share(memory), 3)


def _verdict(frontier: Frontier) -> str:
    verdict = frontier.curve.standing(None).verdict
    if frontier.curve.status(None) != "optimal":
        return verdict
    return "optimal for these stages with any memory (another split may be shorter)"


def proof_text(frontier: Frontier) -> str:
    """Say how many points are proven, and the largest gap."""
    gaps = [row.gap for row in frontier.rows if row.gap is not None]
    proven = sum(row.status == "optimal" for row in frontier.rows)
    text = f"{proven} of {len(frontier.rows)} points proven optimal"
    return f"{text}, largest gap {at_most(max(gaps))}" if gaps else text


def fact(frontier: Frontier) -> str:
    """Say what one curve of several spans."""
    values = [row.known.value for row in frontier.rows if row.known is not None]
    if not values:
        return "no schedule found in time"
    unit = frontier.curve.problem.time_unit
    most, least = (time_text(value, unit) for value in (max(values), min(values)))
    return f"{most} to {least}, {proof_text(frontier)}"


def tables_of(curves: Mapping[str | None, Frontier], rows: list[Compared]) -> Iterator[Table]:
    """Yield the best of each curve at the same capacities, then every curve, then published ones.

    Raises
    ------
    Contradiction
        If a row is not what its curve says.
    """
    for frontier in curves.values():
        frontier.require_consistent()
    if rows:
        yield _compared(rows)
    for placement, frontier in curves.items():
        lines = [_cells(row) for row in frontier.rows]
        title = _title(frontier.curve, placement)
        yield Table(_columns(frontier), lines, title, [*_notes(frontier)])
        if frontier.points:
            yield _published(frontier)


def _compared(rows: list[Compared]) -> Table:
    """A line per capacity: the best of each mode, and what is proven of it."""
    *names, last = rows[0].standings
    columns = [Column("cap"), Column("x 1F1B")]
    columns += [Column("keep\n(wait)" if n == KEEP else n, spare=1) for n in names]
    columns += [Column(last.replace(" or ", "\nor "))]
    lines = []
    for row in rows:
        share = "-" if row.share is None else rounded_up(row.share, 3)
        lines.append([str(row.cap), share, *map(_best, row.standings.values())])
    title = "the best of each curve at the same caps (in brackets: the gap to its bound)"
    return Table(columns, lines, title)


def _best(standing: Standing) -> str:
    if standing.value is None:
        return "infeasible" if standing.infeasible else "-"
    return f"{standing.value} ({'optimal' if standing.proven else standing.gap_text()})"


def _title(curve: Curve, placement: str | None) -> str:
    name = curve.problem.name or "problem"
    if placement is not None and not name.endswith(placement):
        name = f"{name}, {placement}"
    about = "a cap is the capacity of every device, static memory included"
    return f"{name}: {'; '.join([*units_of(curve.problem), about])}"


def _columns(frontier: Frontier) -> list[Column]:
    return [
        Column("cap"),
        Column("x 1F1B"),
        Column(frontier.curve.objective),
        Column("bound", spare=1),
        Column("gap"),
        Column("status", number=False),
        Column("over\nbest"),
        Column("largest\npeak", spare=2),
        Column("best\nhand-written", spare=3),
        Column("found by", number=False, spare=5),
        Column("seconds", spare=4),
    ]


def _cells(row: CapRow) -> list[str]:
    known, bound, baseline = row.known, row.bound, row.baseline
    return [
        "unlimited" if row.cap is None else str(row.cap),
        "-" if row.share is None else rounded_up(row.share, 3),
        number(None if known is None else known.value),
        number(None if bound is None else bound.value),
        at_most(row.gap),
        row.status,
        at_most(row.over_best, 1),
        number(None if known is None else known.peak),
        "-" if baseline is None else f"{baseline.value} {baseline.name:<12}",
        "" if known is None else known.schedule.source,
        f"{row.seconds:.1f}",
    ]


def _published(frontier: Frontier) -> Table:
    """Hand-written schedules by peak, with what the curve has at the same memory."""
    columns = [
        Column("hand-written", number=False),
        Column("peak"),
        Column("x 1F1B"),
        Column(frontier.curve.objective),
        Column("the curve there"),
        Column("above it"),
    ]
    lines = []
    for point in sorted(frontier.points, key=lambda point: (point.known.peak, point.known.value)):
        at_peak = frontier.curve.value(point.known.peak)
        above = excess(point.known.value, at_peak, point.name)
        share = "-" if frontier.scale is None else _share(frontier.scale, point.known.peak)
        cells = [point.name, str(point.known.peak), share, str(point.known.value)]
        lines.append([*cells, number(at_peak), at_most(above)])
    return Table(columns, lines)


def _notes(frontier: Frontier) -> Iterator[str]:
    if frontier.scale is None:
        return
    scale = frontier.scale
    largest = ", the largest of any device" if scale.static else ""
    yield (
        f"x 1F1B: (cap - {scale.static} static{largest}) / {scale.activations}, the "
        "activations that 1F1B holds of these layers on one stage per device"
    )
    for point in frontier.points:
        peak = point.known.peak
        if point.name == "1f1b" and scale.share(peak) < 1:
            yield (
                f"1F1B itself needs {peak}, less than {scale.cap(Fraction(1))} at 1 x: no device "
                "has both the most static memory and the most activations"
            )


def sufficient_lines(found: Sufficient, within: Fraction) -> Iterator[tuple[str, str]]:
    """Yield the least capacity, what it costs, and what is proven of each."""
    curve, best, cap, sums = found.curve, found.best, found.cap, found.lightest
    problem, objective = curve.problem, curve.objective

    def time(value: int) -> str:
        return time_text(value, problem.time_unit)

    of = "unlimited memory" if best.memory == "unlimited" else "the file's capacities"
    if best.value is None or cap is None:
        yield "Take", f"nothing: no schedule found in time with {of}"
        return
    if cap.enough is None:
        yield "Take", "nothing: no capacity found in time"
    else:
        share = "" if found.scale is None else f" ({_share(found.scale, cap.enough)} x 1F1B)"
        yield "Take", f"{memory_text(cap.enough, problem.memory_unit)} on every device{share}"
        if cap.proven:
            yield "Proof", "proven smallest"
        elif cap.too_little is None:
            yield "Proof", "not proven smallest: no smaller capacity is proven to be too little"
        else:
            many = f"{cap.undecided} {plural(cap.undecided, 'capacity', '')}"
            many = many if cap.undecided == 1 else f"{cap.undecided} capacities"
            little = memory_text(cap.too_little, problem.memory_unit)
            yield "Proof", f"not proven smallest: {little} is too little, {many} between are open"
    if sums is not None:
        yield "Costs", f"{time(sums.known.value)}, found by {sums.known.schedule.source}"
    yield "Target", f"{time(cap.target)}, at most {as_given(within)} longer than the best"
    yield "Best", f"{time(best.value)} ({objective}) with {of}, {best.standing.verdict}"
    if sums is not None:
        proof = "proven smallest" if sums.standing.proven else f"bound {sums.bound}"
        yield "Sum of peaks", f"{sums.value} within that capacity ({proof})"
    yield "Searched", f"{found.wall_s:.1f} s"


def sufficient_table(found: Sufficient) -> Iterator[Table]:
    """Yield the peak of every device, and the least that it can be."""
    sums, problem = found.lightest, found.curve.problem
    if sums is None:
        return
    columns = [Column("device", number=False), Column("peak"), Column("at least")]
    lines = [
        [problem.device_name(device), str(peak), str(least)]
        for device, (peak, least) in enumerate(zip(sums.known.peaks, sums.least, strict=True))
    ]
    yield Table(columns, lines)
